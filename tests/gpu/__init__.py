"""What only a GPU can prove: `python -m tests.gpu.run`, and tests with the marker `gpu`."""
