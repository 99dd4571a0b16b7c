package web

import (
	"context"
	"net"
	"net/http"
)

// The names of actors without a name of their own.
const (
	anybody = "page"  // where no login is needed
	bearer  = "token" // any client that has it
)

// Visitor is the sender of a request.
type Visitor struct {
	// Actor is the user that logged in, "token" for a bearer token, or "page" where no
	// login is needed.
	Actor string
	// Remote is the address that the request came from, without its port. Behind a proxy
	// it is the proxy's.
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

// VisitorOf returns the sender of the request with this context. Outside of the server it
// is the zero Visitor.
func VisitorOf(ctx context.Context) Visitor {
	visitor, _ := ctx.Value(visitorKey{}).(Visitor)
	return visitor
}
