package database

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// giveUpUnanswered bounds how long the kernel sends again what the other end does not acknowledge.
func giveUpUnanswered(network, _ string, socket syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	return socket.Control(func(fd uintptr) { //nolint:wrapcheck // net words it
		// A kernel without it leaves the keep-alive.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deadAfter.Milliseconds()))
	})
}
