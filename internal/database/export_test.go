package database

import "net"

// Unwrap returns the socket below a connection.
func Unwrap(conn net.Conn) net.Conn {
	if c, ok := conn.(*connection); ok {
		return c.Conn
	}
	return conn
}

// PingAfter exports pingAfter.
const PingAfter = pingAfter
