package pgtest

import (
	"context"
	"net"
	"sync/atomic"
	"time"
)

// Distance lies between a test and its server: it makes each round trip of the connections that it dials last longer by Delay
// nanoseconds, and counts them.
type Distance struct{ Delay, Trips atomic.Int64 }

// Dial is for the DialFunc of a connection's configuration.
func (d *Distance) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &distant{Conn: conn, distance: d}, nil
}

// distant is a connection over a distance.
type distant struct {
	net.Conn

	distance *Distance
	// asked reports that something was sent after the last answer.
	asked atomic.Bool
}

func (c *distant) Write(b []byte) (int, error) {
	if !c.asked.Swap(true) {
		c.distance.Trips.Add(1)
		<-time.After(time.Duration(c.distance.Delay.Load()))
	}
	return c.Conn.Write(b)
}

func (c *distant) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.asked.Store(false)
	return n, err
}
