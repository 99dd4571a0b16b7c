package devpg

import "syscall"

// setDeathSignal makes the kernel send the signal when the parent dies, by SIGKILL too.
func setDeathSignal(attr *syscall.SysProcAttr, signal syscall.Signal) { attr.Pdeathsig = signal }
