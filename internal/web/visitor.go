package web

import (
	"context"
	"net"
	"net/http"
)

// These are the actors of requests without a user name.
const (
	anybody = "page"
	bearer  = "token"
)

// Visitor is the sender of a request.
type Visitor struct {
	// Actor is the user that logged in, "token" for a bearer token, or "page" if no login
	// is required.
	Actor string
	// Remote is the address of the client, or of its proxy, without the port.
	Remote string
}

func newVisitor(actor string, r *http.Request) Visitor {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return Visitor{Actor: actor, Remote: host}
}

type visitorKey struct{}

func withVisitor(ctx context.Context, v Visitor) context.Context {
	return context.WithValue(ctx, visitorKey{}, v)
}

// VisitorOf returns the sender of the request with this context, or the zero Visitor if
// it is not the context of a request.
func VisitorOf(ctx context.Context) Visitor {
	visitor, _ := ctx.Value(visitorKey{}).(Visitor)
	return visitor
}
