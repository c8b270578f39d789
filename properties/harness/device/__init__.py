"""Workers: processes that hold the device, and can be killed. `properties.device` is the public face."""
