package devpg

import "syscall"

// setDeathSignal makes the kernel send SIGINT, Postgres's fast shutdown, when the parent dies, by SIGKILL too.
func setDeathSignal(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGINT }
