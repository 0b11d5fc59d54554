"""The convolution lab's ways into the libraries under torch: oneDNN, torch's own kernels, NNPACK, cuDNN."""
