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
	// retryEvery is how often a port that is taken is tried again: the copy that has it
	// may end.
	retryEvery = 5 * time.Second
	// refusedEvery is how often refused credentials are told: a guesser tries many times
	// a second.
	refusedEvery = time.Minute
	// stopGrace is how long running requests may take to end. The worker has other things
	// to wait for.
	stopGrace = time.Second

	readHeaderTimeout = 2 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 2 * time.Minute // Beyond usual scrape intervals, so that these keep their connection.
	maxHeaderBytes    = 16 << 10
)

// Server serves one process.
type Server struct {
	// Settings are checked by config: an address beyond loopback comes with credentials.
	Settings config.HTTP
	// Metrics serves /metrics.
	Metrics http.Handler
	// Ready answers /readyz. It is called at most once a second, and its context ends
	// after two.
	Ready func(ctx context.Context) Readiness
	// Page serves all other paths, and River those under RiverPath. Nil means that there
	// is nothing.
	Page  http.Handler
	River http.Handler
	// Record gets each change that a visitor asks of River, before it is made. An error
	// refuses it.
	Record func(ctx context.Context, by Visitor, change Change) error
	// Listener, if set, is served in place of Settings.Listen, and closed at the end.
	Listener net.Listener
	Logger   *slog.Logger
}

// Run serves until ctx ends. It does nothing where no address is configured.
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
		MaxHeaderBytes: maxHeaderBytes, ConnState: slots.changed,
		ErrorLog: slog.NewLogLogger(s.Logger.Handler(), slog.LevelWarn),
	}
	s.Logger.InfoContext(ctx, "http server listens", "address", listener.Addr().String())
	served := make(chan error, 1)
	go func() { served <- server.Serve(slots) }()
	select {
	case err := <-served:
		s.Logger.ErrorContext(ctx, "http server ended", "error", err)
	case <-ctx.Done():
		stop(ctx, server)
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			s.Logger.ErrorContext(ctx, "http server ended", "error", err)
		}
	}
}

// listen waits until the address can be had. It returns nil once ctx has ended.
func (s *Server) listen(ctx context.Context) net.Listener {
	var config net.ListenConfig
	for told := false; ; told = true {
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
		if !told {
			s.Logger.WarnContext(ctx,
				"no page, metrics and health checks for now: http.listen cannot be served; give each copy its own address, or \"\" for none",
				"key", "http.listen", "address", s.Settings.Listen, "error", err, "retry_ms", retryEvery.Milliseconds())
		}
		if pace.Sleep(ctx, retryEvery) != nil {
			return nil
		}
	}
}

var errOpen = errors.New("it is reachable from other machines and needs user and password, or a token")

// permit checks the address that came of the configured one: a host name may lead
// anywhere.
func (s *Server) permit(address net.Addr) error {
	if !isLoopback(address) && !newCredentials(s.Settings).any() {
		return fmt.Errorf("listen on %s: %w", address, errOpen)
	}
	return nil
}

// stop lets running requests end, for a while.
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
