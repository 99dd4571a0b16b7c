package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"sexton/internal/config"
	"sexton/internal/jobrun"
	"sexton/internal/pace"
)

const (
	// retryEvery is the time between attempts to listen on a port that another process
	// uses.
	retryEvery = 5 * time.Second
	// refusedEvery is the minimum time between log lines about refused credentials. An
	// attacker who guesses passwords could otherwise cause many lines per second.
	refusedEvery = time.Minute
	// stopGrace is the time that running requests have to finish at a shutdown.
	stopGrace = time.Second

	readHeaderTimeout = 2 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 30 * time.Second
	// idleTimeout is longer than usual scrape intervals, so that Prometheus keeps its
	// connection.
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
)

// Server is the HTTP server of one process.
type Server struct {
	// Settings were checked by package config: an address that other machines can reach
	// needs credentials.
	Settings config.HTTP
	// Metrics serves /metrics.
	Metrics http.Handler
	// Ready returns the response of /readyz. It is called at most once a second, with a
	// context that ends after two seconds.
	Ready func(ctx context.Context) Readiness
	// River serves the paths below RiverPath, and Page all other paths. If one is nil,
	// its paths are not served.
	Page  http.Handler
	River http.Handler
	// Record is called for each change that a visitor requests of River, before the
	// change is made. If it returns an error, the change is refused.
	Record func(ctx context.Context, by Visitor, change Change) error
	// Listener, if set, replaces Settings.Listen. Run closes it.
	Listener net.Listener
	Logger   *slog.Logger
}

// Run serves until ctx ends. It returns immediately if no address is configured.
func (s *Server) Run(ctx context.Context) {
	listener := s.Listener
	if listener == nil {
		if s.Settings.Listen == "" {
			return
		}
		listener = s.listen(ctx)
	}
	if listener == nil {
		return
	}
	refusals := jobrun.NewDedup(s.Logger.Handler(), refusedEvery, jobrun.ByMessage)
	defer refusals.Flush()
	slots := limit(listener)
	server := &http.Server{
		Handler:           s.handler(isLoopback(listener.Addr()), slog.New(refusals)),
		ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeaderBytes, ConnState: slots.release,
		ErrorLog: slog.NewLogLogger(s.Logger.Handler(), slog.LevelWarn),
	}
	s.Logger.InfoContext(ctx, "http_server_started", "address", listener.Addr().String())
	served := make(chan error, 1)
	go func() { served <- server.Serve(slots) }()
	select {
	case err := <-served:
		s.Logger.ErrorContext(ctx, "http_server_ended", "error", err)
	case <-ctx.Done():
		stop(ctx, server)
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			s.Logger.ErrorContext(ctx, "http_server_ended", "error", err)
		}
	}
}

// listen waits until it can listen on the configured address, and returns the listener.
// It returns nil if ctx ends first.
func (s *Server) listen(ctx context.Context) net.Listener {
	var config net.ListenConfig
	for logged := false; ; logged = true {
		listener, err := config.Listen(ctx, "tcp", s.Settings.Listen)
		if err == nil {
			if err = s.permit(listener.Addr()); err == nil {
				return listener
			}
			_ = listener.Close()
		}
		if ctx.Err() != nil {
			return nil
		}
		if !logged {
			s.Logger.WarnContext(ctx,
				"http_listen_failed",
				"fix", "without page, metrics and health checks until the address is free; give each process its own http.listen, or \"\" for none",
				"key", "http.listen", "address", s.Settings.Listen, "error", err, "retry_ms", retryEvery.Milliseconds())
		}
		if pace.Sleep(ctx, retryEvery) != nil {
			return nil
		}
	}
}

var errOpen = errors.New("an address that other machines can reach needs user and password, or a token")

// permit returns an error if the address needs credentials and none are configured. It
// checks the resolved address, because the configuration may contain a host name.
func (s *Server) permit(address net.Addr) error {
	if !isLoopback(address) && !newCredentials(s.Settings).any() {
		return fmt.Errorf("listen on %s: %w", address, errOpen)
	}
	return nil
}

// stop shuts the server down. It waits for running requests for at most stopGrace.
func stop(ctx context.Context, server *http.Server) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		_ = server.Close()
	}
}

func isLoopback(address net.Addr) bool {
	tcp, ok := address.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
