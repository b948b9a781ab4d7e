"""Foundation of the package: errors, values, checks of settings, the registry of parts, progress, and kernels."""
