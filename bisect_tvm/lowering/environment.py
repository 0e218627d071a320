"""Which TVM this is."""

import tvm


def tvm_environment() -> dict[str, str]:
    """Versions of TVM and of the LLVM in it, for the report."""
    llvm = tvm.get_global_func("target.llvm_version_major", allow_missing=True)
    return {"tvm": str(tvm.__version__), "llvm": str(llvm()) if llvm is not None else "none"}
