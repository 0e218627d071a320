"""Small models with random weights, one of each kind that people compile, for measurements.

Each entry makes a model in evaluation mode and an input of a given scale; both depend on the seed alone. Language models are fed
embeddings, so that the scale means something for them too.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Case = tuple[nn.Module, Any]


class Calls(nn.Module):
    """A module whose forward is a function of its parts, for models that are no plain chain."""

    def __init__(self, forward: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        self._forward = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args: torch.Tensor) -> Any:
        """Call the function on this module and the arguments."""
        return self._forward(self, *args)


def bert(scale: float) -> Case:
    """Two layers, eager attention."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=50, attn_implementation="eager"
    )
    return BertModel(config), {"inputs_embeds": scale * torch.randn(2, 6, 32)}


def gpt2(scale: float) -> Case:
    """Two layers, with gelu_new."""
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=50, attn_implementation="eager")
    return GPT2Model(config), {"inputs_embeds": scale * torch.randn(2, 6, 32), "use_cache": False}


def llama(scale: float) -> Case:
    """Two layers, grouped queries, RMSNorm, SiLU, rotary embedding."""
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=50,
        attn_implementation="eager",
    )  # fmt: skip
    return LlamaModel(config), {"inputs_embeds": scale * torch.randn(2, 6, 32), "use_cache": False}


def vit(scale: float) -> Case:
    """Two layers on 16 patches."""
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=16, patch_size=4
    )
    return ViTModel(config), scale * torch.randn(2, 3, 16, 16)


def resnet(scale: float) -> Case:
    """Basic blocks with batch norm in evaluation mode."""
    from transformers import ResNetConfig, ResNetModel

    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    return ResNetModel(config), scale * torch.randn(2, 3, 24, 24)


def convnext(scale: float) -> Case:
    """Depthwise 7x7, LayerNorm over channels, pointwise layers, GELU, layer scale."""

    def block(self: Any, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.norm(self.depthwise(self.stem(x)).permute(0, 2, 3, 1))
        return self.stem(x) + 0.1 * self.shrink(self.act(self.grow(y))).permute(0, 3, 1, 2)  # type: ignore[no-any-return]

    model = Calls(
        block, stem=nn.Conv2d(3, 8, 2, 2), depthwise=nn.Conv2d(8, 8, 7, padding=3, groups=8), norm=nn.LayerNorm(8, eps=1e-6),
        grow=nn.Linear(8, 32), act=nn.GELU(), shrink=nn.Linear(32, 8),
    )  # fmt: skip
    return model, scale * torch.randn(2, 3, 16, 16)


def lstm(scale: float) -> Case:
    """Two bidirectional layers."""
    return nn.LSTM(5, 6, 2, batch_first=True, bidirectional=True), scale * torch.randn(2, 4, 5)


def gru(scale: float) -> Case:
    """Two layers."""
    return nn.GRU(5, 6, 2, batch_first=True), scale * torch.randn(2, 4, 5)


def attention(scale: float) -> Case:
    """MultiheadAttention, with and without a causal mask."""

    def both(self: Any, x: torch.Tensor) -> Any:
        mask = torch.triu(torch.ones(6, 6, dtype=torch.bool), 1)
        return self.attention(x, x, x)[0], self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]

    return Calls(both, attention=nn.MultiheadAttention(16, 4, batch_first=True)), scale * torch.randn(2, 6, 16)


def convolutions(scale: float) -> Case:
    """Depthwise, dilated, grouped and transposed convolutions in one, two and three dimensions."""
    two = nn.Sequential(
        nn.Conv2d(4, 8, 3, groups=4, padding=1), nn.Conv2d(8, 8, 3, dilation=2, bias=False), nn.ConvTranspose2d(8, 4, 4, 2, 1),
        nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1, groups=2),
    )  # fmt: skip
    one = nn.Sequential(nn.Conv1d(4, 6, 3, stride=2), nn.ConvTranspose1d(6, 4, 3, stride=2))
    model = Calls(
        lambda self, x: (self.two(x), self.one(x.flatten(2)), self.three(x.unsqueeze(1))),
        two=two, one=one, three=nn.Conv3d(1, 2, 3),
    )  # fmt: skip
    return model, scale * torch.randn(2, 4, 10, 10)


def groupnorm(scale: float) -> Case:
    """A convolution, GroupNorm, SiLU, as in diffusion models."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.GroupNorm(4, 16, eps=1e-6), nn.SiLU(), nn.Conv2d(16, 16, 3), nn.GroupNorm(16, 16)
    ), scale * torch.randn(2, 3, 12, 12)


def instancenorm(scale: float) -> Case:
    """InstanceNorm with and without affine parameters, as in style transfer."""
    return nn.Sequential(
        nn.ReflectionPad2d(1), nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3),
        nn.InstanceNorm2d(8, affine=True),
    ), scale * torch.randn(2, 3, 12, 12)  # fmt: skip


def embeddings(scale: float) -> Case:
    """Embedding bags (sum, mean) and an embedding whose weights have the scale."""
    words = torch.randint(0, 20, (3, 5))

    def all_of_them(self: Any, x: torch.Tensor) -> Any:
        return self.summed(x), self.averaged(x), self.plain(x).mean(1), self.plain(x).amax(1), self.plain(x).sum(1)

    model = Calls(
        all_of_them, summed=nn.EmbeddingBag(20, 8, mode="sum"), averaged=nn.EmbeddingBag(20, 8, mode="mean"),
        plain=nn.Embedding(20, 8),
    )  # fmt: skip
    with torch.no_grad():
        for weights in model.parameters():
            weights.mul_(scale)
    return model, words


def pooling(scale: float) -> Case:
    """All kinds of pooling."""
    pools = (
        nn.AvgPool2d(3, 2, 1), nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), nn.MaxPool2d(3, 2, 1),
        nn.AdaptiveAvgPool2d(3), nn.AdaptiveAvgPool2d(1), nn.MaxPool2d(2), nn.LPPool2d(2, 2),
    )  # fmt: skip
    model = Calls(lambda self, x: [pool(x) for pool in self.pools], pools=nn.ModuleList(pools))
    return model, scale * torch.randn(2, 3, 9, 9)


def activations(scale: float) -> Case:
    """Every activation that TVM converts as PyTorch defines it."""
    kinds = (
        nn.ReLU(), nn.GELU(), nn.GELU(approximate="tanh"), nn.SiLU(), nn.Sigmoid(), nn.Tanh(), nn.Softplus(), nn.Mish(),
        nn.Hardswish(), nn.Hardsigmoid(), nn.LeakyReLU(0.1), nn.ELU(), nn.LogSigmoid(), nn.Softmax(-1), nn.LogSoftmax(-1),
        nn.Softsign(), nn.ReLU6(), nn.PReLU(), nn.Tanhshrink(),
    )  # fmt: skip
    model = Calls(lambda self, x: [kind(x) for kind in self.kinds], kinds=nn.ModuleList(kinds))
    return model, scale * torch.randn(8, 12)


def encoder(scale: float) -> Case:
    """PyTorch's own transformer layers."""
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), scale * torch.randn(2, 6, 16)


def mlp(scale: float) -> Case:
    """Wide layers: long sums."""
    return nn.Sequential(
        nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 32), nn.LayerNorm(32), nn.Linear(32, 4, bias=False)
    ), scale * torch.randn(4, 512)


KINDS: dict[str, Callable[[float], Case]] = {
    make.__name__: make
    for make in (
        activations, attention, bert, convnext, convolutions, embeddings, encoder, gpt2, groupnorm, gru, instancenorm, llama, lstm,
        mlp, pooling, resnet, vit,
    )
}  # fmt: skip
"""Every kind of model by name."""


def make(kind: str, seed: int, scale: float) -> Case:
    """The model of one kind, in evaluation mode, with its inputs."""
    torch.manual_seed(seed)
    model, inputs = KINDS[kind](scale)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None and module.running_var is not None:
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2.0)
    return model.eval(), inputs
