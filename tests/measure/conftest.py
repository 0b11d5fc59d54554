from nvml_stand_in import compile_fake_nvml, fake_nvml, no_driver, old_fake_nvml

__all__ = ["compile_fake_nvml", "fake_nvml", "no_driver", "old_fake_nvml"]
