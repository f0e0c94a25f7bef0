"""Problems as KernelBench writes them, drawn at random, each with a kernel."""
