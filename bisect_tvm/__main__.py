"""``python -m bisect_tvm`` is ``bisect-tvm``."""

from bisect_tvm.cli import main

if __name__ == "__main__":
    main()
