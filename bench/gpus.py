"""GPUs for XLA's GPU compiler, which needs none: it compiles for a description of one.

Topologies are named by a GPU of `GPUS` and by slices, hosts and devices of a host: "h200:1x1x8".
"""

from __future__ import annotations

import importlib.util
from typing import Any

# Figures of NVIDIA's Hopper tuning guide and H200 data sheet, in the fields that XLA's `GpuTargetConfigProto` has.
GPUS = {
    "h200": """
gpu_device_info {
  name: "NVIDIA H200"
  device_vendor: "NVIDIA Corporation"
  platform_version: "Compute Capability 9.0a"
  cuda_compute_capability { major: 9 feature_extension: ACCELERATED_FEATURES }
  core_count: 132
  fpus_per_core: 128
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  shared_memory_per_core: 233472
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
  clock_rate_ghz: 1.98
  l2_cache_size: 52428800
  device_memory_size: 151397597184
  memory_bandwidth: 4800000000000
  device_address_bits: 64
  driver_version: "13.0.0"
  runtime_version: "13.0.0"
  compile_time_toolkit_version: "13.0.0"
  dnn_version: "9.10.0"
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
device_description_str: "NVIDIA H200"
""",
}
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "3",  # that there is no GPU
    "XLA_FLAGS": "--xla_gpu_autotune_level=0",  # the compiler would time kernels
}


def is_gpu(topology: str) -> bool:
    """Whether a topology is of GPUs."""
    return topology.partition(":")[0] in GPUS


def devices_of(topology: str) -> list[Any]:
    """The devices of a topology, for the compiler alone."""
    from jax.experimental import topologies

    name, _, shape = topology.partition(":")
    return list(topologies.get_topology_desc(shape, "cuda", topology=shape, target_config=GPUS[name]).devices)


def missing() -> str | None:
    """Why there is no GPU compiler, or None."""
    has_plugins = importlib.util.find_spec("jax_plugins") is not None
    if has_plugins and any(importlib.util.find_spec(f"jax_plugins.xla_cuda{version}") for version in (12, 13)):
        return None
    return "it needs the GPU compiler: pip install 'jax[cuda13]'"
