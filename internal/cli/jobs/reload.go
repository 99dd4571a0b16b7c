package jobs

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"

	"sexton/internal/cli"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/installation"
	"sexton/internal/pace"
)

// worker holds the flags of `sexton run`.
type worker struct {
	failFast bool
	// refused has the reason why the last reload was refused.
	refused *refusal
}

// refusal is why a worker refused its changed files, or nil.
type refusal struct{ atomic.Pointer[string] }

func (r *refusal) set(reason string) { r.Store(&reason) }

// text returns the reason, or "".
func (r *refusal) text() string {
	if reason := r.Load(); reason != nil {
		return *reason
	}
	return ""
}

// loaded is a configuration with its definitions.
type loaded struct {
	*config.Config

	read installation.Files
}

// runWorker works until ctx ends. After SIGHUP, the worker reads its files, stops as
// after SIGTERM, and starts with them. If they are invalid, it keeps the old
// configuration.
func runWorker(ctx context.Context, env *cli.Env, flags worker) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	c, err := readWorker(env)
	if err != nil {
		return err
	}
	log := env.Logger(c.Config)
	for wait := installation.RetryFirst; ; {
		next, err := workUntilReload(ctx, env, c, flags, hangups, log)
		switch {
		case ctx.Err() == nil && next != nil:
			c, wait = next, installation.RetryFirst
			log = env.Logger(c.Config)
		case ctx.Err() == nil && database.Lost(err) && !flags.failFast:
			// A database can be lost between any two steps of the start.
			log.WarnContext(ctx, "database_unreachable_at_start", "database", c.Jobs.Database, "error", err,
				"wait_ms", wait.Milliseconds())
			if pace.Sleep(ctx, wait) != nil {
				return nil
			}
			wait = min(2*wait, installation.RetryLongest)
		default:
			return err
		}
	}
}

// readWorker reads the configuration and the definitions.
func readWorker(env *cli.Env) (*loaded, error) {
	c, err := env.LoadConfig()
	if err != nil {
		return nil, err
	}
	return &loaded{Config: c, read: installation.ReadFiles(c)}, hasJobs(c)
}

// workUntilReload works with one configuration. It returns the next one after a reload.
func workUntilReload(
	ctx context.Context, env *cli.Env, c *loaded, flags worker, hangups chan os.Signal, log *slog.Logger,
) (next *loaded, err error) {
	all, err := c.read.BindForWork(ctx, c.Config, flags.failFast)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	inner, stop := context.WithCancel(ctx)
	var listening sync.WaitGroup
	listening.Go(func() {
		if fresh := awaitReload(inner, env, flags, hangups, log); fresh != nil {
			next = fresh
			stop()
		}
	})
	err = Work(inner, all, log, Endpoint{settings: c.HTTP, refused: flags.refused})
	stop()
	listening.Wait()
	return next, err
}

// awaitReload reads the files after each signal. It returns the first valid
// configuration, or nil when ctx ends.
func awaitReload(ctx context.Context, env *cli.Env, flags worker, hangups chan os.Signal, log *slog.Logger) *loaded {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hangups:
		}
		fresh, err := readWorker(env)
		if err == nil {
			err = fresh.fits(ctx)
		}
		switch {
		case err == nil:
			flags.refused.Store(nil)
			log.InfoContext(ctx, "configuration_reloaded")
			return fresh
		case ctx.Err() != nil:
			return nil
		}
		flags.refused.set(err.Error())
		log.ErrorContext(ctx, "configuration_not_reloaded", "error", err)
	}
}

// fits checks the configuration and the definitions in the databases, as at a start.
func (c *loaded) fits(ctx context.Context) error {
	all, err := c.read.BindReachable(ctx, c.Config)
	if err == nil {
		all.Close()
	}
	return err
}
