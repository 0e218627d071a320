"""Which TVM this is."""

import tvm


def tvm_environment(target: tvm.target.Target) -> dict[str, str]:
    """Version, LLVM and target, for the report."""
    llvm = tvm.get_global_func("target.llvm_version_major", allow_missing=True)
    return {
        "tvm": str(tvm.__version__),
        "llvm": str(llvm()) if llvm is not None else "none",
        "target": str(target),
    }
