"""The convolution lab's access to the libraries under torch: oneDNN, torch's own kernels, NNPACK, cuDNN."""
