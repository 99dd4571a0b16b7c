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
	// refused is the reason why the last reload failed.
	refused *refusal
}

// refusal holds the reason why a worker refused its changed files. It is safe for
// concurrent use.
type refusal struct{ atomic.Pointer[string] }

func (r *refusal) set(reason string) { r.Store(&reason) }

// text returns the reason, or "" if the last reload succeeded.
func (r *refusal) text() string {
	if reason := r.Load(); reason != nil {
		return *reason
	}
	return ""
}

// loaded is a configuration with the content of its definition files.
type loaded struct {
	*config.Config

	read installation.Files
}

// runWorker runs the worker until ctx ends. On SIGHUP, it reads the files again, stops
// the jobs as on SIGTERM, and starts with the new configuration. If the files are
// invalid, it continues with the old configuration.
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
			// Start again after a pause, because the connection to a database can be lost
			// at any step of the start.
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

// readWorker reads the configuration and the definition files. It returns an error if no
// job is enabled.
func readWorker(env *cli.Env) (*loaded, error) {
	c, err := env.LoadConfig()
	if err != nil {
		return nil, err
	}
	return &loaded{Config: c, read: installation.ReadFiles(c)}, hasJobs(c)
}

// workUntilReload runs the worker with one configuration. After a reload it returns the
// next configuration, and nil when ctx ends.
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
			err = fresh.checkDatabases(ctx)
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

// checkDatabases checks the configuration and the definitions against the databases, as
// at a start.
func (c *loaded) checkDatabases(ctx context.Context) error {
	all, err := c.read.BindReachable(ctx, c.Config)
	if err == nil {
		all.Close()
	}
	return err
}
