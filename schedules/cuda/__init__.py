"""Schedules for CUDA GPUs, run and checked by the emulator where there is none."""

from __future__ import annotations
