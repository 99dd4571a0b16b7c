//go:build !linux

package devpg

import "syscall"

// setDeathSignal does nothing where the system has no parent-death signal: there the janitor alone ends the server.
func setDeathSignal(*syscall.SysProcAttr, syscall.Signal) {}
