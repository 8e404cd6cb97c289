//! Threads that give way: to whoever else wants the processors or the devices.

/// From now on this thread runs when nobody else wants to, and its reads and writes go when the device has nothing else to do.
/// Only hints: where the system does not take them, it runs as any other.
pub(crate) fn give_way() {
    // Threads are what Linux takes for processes here: others of this process are left alone.
    let _ = rustix::process::setpriority_process(None, 19);
    idle();
}

/// The idle class of the scheduler and of devices.
fn idle() {
    const WHO_PROCESS: libc::c_long = 1;
    const CLASS_IDLE: libc::c_long = 3 << 13;
    // SAFETY: a system call of three numbers, about the calling thread.
    unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, CLASS_IDLE) };
    // SAFETY: the structure may be all zeros, and is as the C library has it.
    let param: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: about the calling thread; the pointer is read during the call alone.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const param) };
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_thread_gives_way_and_others_do_not() {
        let class = || {
            // SAFETY: a system call of one number.
            unsafe { libc::sched_getscheduler(0) }
        };
        let before = class();
        let inside = std::thread::spawn(move || {
            super::give_way();
            class()
        });
        assert_eq!((inside.join().unwrap(), class()), (libc::SCHED_IDLE, before));
    }
}
