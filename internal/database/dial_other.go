//go:build !linux

package database

import (
	"net"
	"syscall"
)

// setUserTimeout does nothing on this platform. The TCP keep-alive detects a dead peer.
func setUserTimeout(string, string, syscall.RawConn) error { return nil }

// quiet returns false, so that a ping checks the connection.
func quiet(net.Conn) bool { return false }
