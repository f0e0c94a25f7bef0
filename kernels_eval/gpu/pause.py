"""A kernel that keeps the device busy for a given time and touches no memory, as PTX for any GPU since Volta.

By the device's clock of nanoseconds: `torch.cuda._sleep` counts cycles, whose length changes by a quarter as the device
warms up. A round holds 20 pauses; calls of a few microseconds would drown in that.
"""

NAME = "kernels_eval_pause"
# The turns are counted so that a timer that stands still cannot hang the device.
PROGRAM = f"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry {NAME}(.param .u64 nanoseconds)
{{
    .reg .u64 %wanted, %begun, %now;
    .reg .u32 %turns;
    .reg .pred %waits;
    ld.param.u64 %wanted, [nanoseconds];
    mov.u32 %turns, 0;
    mov.u64 %begun, %globaltimer;
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %begun;
    add.u32 %turns, %turns, 1;
    setp.lt.u64 %waits, %now, %wanted;
    setp.lt.and.u32 %waits, %turns, 10000000, %waits;
    @%waits bra again;
    ret;
}}
"""
