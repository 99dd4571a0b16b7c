package installation

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"sync"

	"sexton/internal/audittrail"
	"sexton/internal/heartbeat"
)

// Beat has the pass beat as workers do, so that its silence frees its leases, until stop is called. Before that it frees those of
// processes that are silent: there may be no worker that would.
func Beat(ctx context.Context, all *Connections, id string, log *slog.Logger) (stop func(), err error) {
	heart := &heartbeat.Heart{DB: all.Jobs(), ClientID: id, Silence: all.Config.Jobs.Silence, Logger: log, Foreground: true}
	if err := heart.Beat(ctx); err != nil {
		return nil, fmt.Errorf("begin heartbeat: %w", err)
	}
	if _, err := heart.Reclaim(ctx); err != nil {
		return nil, err
	}
	beating, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { LogEnd(beating, log, "heartbeat", heart.Run(beating)) })
	return func() { cancel(); running.Wait() }, nil
}

// Holder names this process in leases, for people who have to find it.
func Holder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	return fmt.Sprintf("%s:%d:%s", host, os.Getpid(), rand.Text()[:6])
}

// Actor names the person at the command line.
func Actor() string {
	if current, err := user.Current(); err == nil {
		return current.Username
	}
	return "unknown"
}

// LogEnd logs the error with which a part of the worker ended.
func LogEnd(ctx context.Context, log *slog.Logger, what string, err error) {
	if err != nil {
		log.ErrorContext(ctx, "part of the worker ended", "part", what, "error", err)
	}
}

// RecordRetry records that a person at the command line has something tried again.
func RecordRetry(ctx context.Context, all *Connections, target string) error {
	return audittrail.Record(ctx, all.Jobs(), all.Jobs().Pool, audittrail.Entry{Actor: Actor(), Action: "retry", Target: target})
}
