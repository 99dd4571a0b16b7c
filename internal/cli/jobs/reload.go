package jobs

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sexton/internal/cli"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/installation"
	"sexton/internal/pace"
)

const (
	// watchEvery is how often a worker looks at its files, settleTime how long they have to stay as they are before it reads them: they
	// may be half written.
	watchEvery = 10 * time.Second
	settleTime = time.Second
	// mostRead bounds what is read of one file to find out if it has changed.
	mostRead = 16 << 20

	stillReading = "configuration is still being read: one of its files hangs"
)

// worker holds the flags of `sexton run`.
type worker struct {
	failFast, readOnly bool
	// refused has why the last reload was refused.
	refused *refusal
}

// refusal is why a worker refused its changed files; nil if it has read them as they are.
type refusal struct{ atomic.Pointer[string] }

func (r *refusal) set(reason string) { r.Store(&reason) }

// text returns the reason, or "".
func (r *refusal) text() string {
	if reason := r.Load(); reason != nil {
		return *reason
	}
	return ""
}

// loaded is a configuration with its definitions, and the digest of its files from before they were read: what changed since shows in it.
type loaded struct {
	*config.Config

	files string
	read  installation.Files
}

// runWorker works until ctx ends. After SIGHUP, or when its files have changed, the worker stops as for SIGTERM and starts with the files
// as they are then; files that are wrong leave it as it is.
func runWorker(ctx context.Context, env *cli.Env, flags worker) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	c, err := patiently(ctx, func() (*loaded, error) { return readWorker(env, flags) }, hangups, func() {
		_, _ = fmt.Fprintln(env.Stderr, "sexton:", stillReading)
	})
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
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
			// A database may go between any two steps of the start.
			log.WarnContext(ctx, "database cannot be reached, trying again", "database", c.Jobs.Database, "error", err, "wait_ms", wait.Milliseconds())
			if pace.Sleep(ctx, wait) != nil {
				return nil
			}
			wait = min(2*wait, installation.RetryLongest)
		default:
			return err
		}
	}
}

// patiently reads files aside: one on a mount that hangs, or a pipe, must not keep the process from its end. It calls say for a reading
// that takes long, and at each signal in the meantime, which stays for afterwards.
func patiently[T any](ctx context.Context, read func() (T, error), hangups chan os.Signal, say func()) (T, error) {
	var got T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		got, err = read()
	}()
	var signalled os.Signal
	defer func() {
		if signalled != nil {
			select {
			case hangups <- signalled:
			default:
			}
		}
	}()
	late := time.After(watchEvery)
	for {
		select {
		case <-done:
			return got, err
		case <-ctx.Done():
			var none T
			return none, ctx.Err() //nolint:wrapcheck // the caller's own
		case <-late:
		case signalled = <-hangups:
		}
		say()
	}
}

// readWorker reads the configuration twice: the first time says which files to watch.
func readWorker(env *cli.Env, flags worker) (*loaded, error) {
	first, err := env.LoadConfig()
	if err != nil {
		return nil, err
	}
	files := digestOf(first.Files())
	c, err := env.LoadConfig()
	if err != nil {
		return nil, err
	}
	c.HTTP.ReadOnly = c.HTTP.ReadOnly || flags.readOnly
	return &loaded{Config: c, files: files, read: installation.ReadFiles(c)}, hasJobs(c)
}

// digestOf changes with what the files hold, wherever symbolic links lead to by then. Size and time of a file say less: they are the
// link's own where a ConfigMap is replaced, and may stay as they were.
func digestOf(paths []string) string {
	sum := sha256.New()
	for _, path := range paths {
		about, err := os.Stat(path)
		if err != nil || !about.Mode().IsRegular() {
			// Reading a pipe would take what is in it, or wait.
			_, _ = fmt.Fprintf(sum, "%s: none\n", path)
			continue
		}
		file, err := os.Open(path)
		if err != nil {
			_, _ = fmt.Fprintf(sum, "%s: unreadable\n", path)
			continue
		}
		_, _ = fmt.Fprintf(sum, "%s: %d\n", path, about.Size())
		_, _ = io.Copy(sum, io.LimitReader(file, mostRead))
		_ = file.Close()
	}
	return string(sum.Sum(nil))
}

// workUntilReload works with one configuration, and returns the next one where it was asked for, or the files have changed.
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
		if fresh := awaitReload(inner, env, c, flags, hangups, log); fresh != nil {
			next = fresh
			stop()
		}
	})
	err = Work(inner, all, log, Endpoint{settings: c.HTTP, refused: flags.refused})
	stop()
	listening.Wait()
	return next, err
}

// awaitReload returns the next configuration, or nil where ctx ends before there is one. Files that changed are read once they have
// stayed the same for a while, and again at every look for as long as they are wrong: it may be the database that they do not fit yet.
func awaitReload(ctx context.Context, env *cli.Env, c *loaded, flags worker, hangups chan os.Signal, log *slog.Logger) *loaded {
	say := func() {
		flags.refused.set(stillReading)
		log.WarnContext(ctx, stillReading)
	}
	look, said := c.files, ""
	for wait := watchEvery; ; {
		asked := false
		select {
		case <-ctx.Done():
			return nil
		case <-hangups:
			asked = true
		case <-time.After(wait):
			before := look
			look, _ = patiently(ctx, func() (string, error) { return digestOf(c.Files()), nil }, hangups, say)
			wait = watchEvery
			switch {
			case ctx.Err() != nil:
				return nil
			case look == c.files:
				if flags.refused.Swap(nil) != nil {
					said = ""
					log.InfoContext(ctx, "configuration is as it was, the worker goes on with it")
				}
				continue
			case look != before:
				wait = settleTime
				continue
			}
		}
		fresh, err := patiently(ctx, func() (*loaded, error) { return readWorker(env, flags) }, hangups, say)
		if err == nil {
			err = fresh.fits(ctx)
		}
		switch {
		case err == nil:
			flags.refused.Store(nil)
			log.InfoContext(ctx, "configuration is reloaded: the worker stops and starts with it")
			return fresh
		case ctx.Err() != nil:
			return nil
		}
		flags.refused.set(err.Error())
		if asked || said != err.Error() {
			said = err.Error()
			log.ErrorContext(ctx, "configuration is not reloaded, the old one stays", "error", err)
		}
	}
}

// fits holds configuration and definitions against the databases, as a start does.
func (c *loaded) fits(ctx context.Context) error {
	all, err := c.read.BindReachable(ctx, c.Config)
	if err == nil {
		all.Close()
	}
	return err
}
