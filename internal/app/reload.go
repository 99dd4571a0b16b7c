package app

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"sexton/internal/config"
	"sexton/internal/database"
)

// worker is what the flags of `sexton run` say.
type worker struct {
	failFast, readOnly bool
}

// runWorker works until ctx ends. After SIGHUP the worker stops as for SIGTERM and starts with the files as they are then; files
// that are wrong leave it as it is.
func (a *app) runWorker(ctx context.Context, flags worker) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	c, err := a.readWorker(flags)
	if err != nil {
		return err
	}
	log := a.logger(c)
	for wait := retryFirst; ; {
		next, err := a.workUntilReload(ctx, c, flags, hangups, log)
		switch {
		case ctx.Err() == nil && next != nil:
			c, wait = next, retryFirst
			log = a.logger(c)
		case ctx.Err() == nil && database.Lost(err) && !flags.failFast:
			// A database may go between any two steps of the start.
			log.WarnContext(ctx, "database cannot be reached, trying again", "database", c.Jobs.Database, "error", err, "wait_ms", wait.Milliseconds())
			if !sleep(ctx, wait) {
				return nil
			}
			wait = min(2*wait, retryLongest)
		default:
			return err
		}
	}
}

func (a *app) readWorker(flags worker) (*config.Config, error) {
	c, err := a.loadConfig()
	if err != nil {
		return nil, err
	}
	c.HTTP.ReadOnly = c.HTTP.ReadOnly || flags.readOnly
	return c, hasJobs(c)
}

// workUntilReload works with one configuration, and returns the next one where it was asked for.
func (a *app) workUntilReload(
	ctx context.Context, c *config.Config, flags worker, hangups <-chan os.Signal, log *slog.Logger,
) (next *config.Config, err error) {
	all, err := bindForWork(ctx, c, flags.failFast)
	if err != nil {
		return nil, err
	}
	defer all.close()
	inner, stop := context.WithCancel(ctx)
	var listening sync.WaitGroup
	listening.Go(func() {
		for {
			select {
			case <-inner.Done():
				return
			case <-hangups:
			}
			fresh, err := a.reread(inner, flags)
			if err == nil {
				a.reloadFailed.Store(false)
				log.InfoContext(ctx, "configuration is reloaded: the worker stops and starts with it")
				next = fresh
				stop()
				return
			}
			if inner.Err() == nil {
				a.reloadFailed.Store(true)
				log.ErrorContext(ctx, "configuration is not reloaded, the old one stays", "error", err)
			}
		}
	})
	err = a.work(inner, all, log, endpoint{settings: c.HTTP})
	stop()
	listening.Wait()
	return next, err
}

// reread reads configuration and definitions, and holds them against the databases, as a start does.
func (a *app) reread(ctx context.Context, flags worker) (*config.Config, error) {
	c, err := a.readWorker(flags)
	if err != nil {
		return nil, err
	}
	all, err := bindReachable(ctx, c)
	if err != nil {
		return nil, err
	}
	all.close()
	return c, nil
}
