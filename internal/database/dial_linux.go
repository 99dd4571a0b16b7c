package database

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// setUserTimeout limits the time for which the kernel retransmits data that the peer does
// not acknowledge.
func setUserTimeout(network, _ string, socket syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	return socket.Control(func(fd uintptr) { //nolint:wrapcheck // net words it
		// Without this option, the TCP keep-alive still detects a dead peer.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deadAfter.Milliseconds()))
	})
}

// quiet reports whether an idle connection has nothing to read: neither the end of the
// connection nor a message of a server that shuts down. The check replaces a ping, which
// costs the server a transaction.
func quiet(conn net.Conn) bool {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if own, ok := conn.(*connection); ok {
		conn = own.Conn
	}
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	var read error
	err = raw.Control(func(fd uintptr) {
		_, _, read = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
	})
	return err == nil && errors.Is(read, unix.EAGAIN)
}
