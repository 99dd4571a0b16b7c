package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"sexton/internal/config"
	"sexton/internal/demo"
	"sexton/internal/devpg"
	"sexton/internal/sample"
	riverjobs "sexton/river_jobs"
)

const (
	demoDatabase = "demo"
	demoRows     = 200_000
	fewestRows   = 1_000
)

const demoIntroduction = `An application deletes rows. For each, a trigger leaves a tombstone in the same
transaction. The commit wakes the worker, which deletes or changes the children
in small batches; with the last of them the tombstone goes.

private Postgres in %d ms; look at it with:
  psql '%s'

`

type demoFlags struct {
	exit, printSchema, printDefinitions bool
	rows                                int
	keep                                string
}

func (a *app) demoCommand() *cobra.Command {
	var flags demoFlags
	cmd := a.reports(&cobra.Command{
		Use:   "demo",
		Short: "See Sexton at work on a private Postgres, with sample data",
		Long: `Starts a private Postgres on a Unix socket, loads a small GitLab-shaped application with sample data, and
runs a worker while the application deletes parents at random. Shows live what happens: a panel on a terminal,
one line a second elsewhere. Ctrl-C stops everything and removes it. Reads neither --config nor the environment.`,
		Example: `  sexton demo
  sexton demo --exit --json                     # ends by itself, with a summary
  sexton demo --keep /tmp/sexton-demo           # keeps the cluster, and says how to go on with it
  sexton demo --print-schema | less`,
		Args: noArguments,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			if a.configPath != "" || a.databaseURL != "" {
				return usageError{errors.New("demo runs on a private Postgres of its own and takes neither --config nor --database-url")}
			}
			if flags.rows < fewestRows {
				return usageError{fmt.Errorf("--rows must be at least %d", fewestRows)}
			}
			switch {
			case flags.printSchema:
				a.printf("%s", sample.Schema())
				return nil
			case flags.printDefinitions:
				a.printf("%s", sample.Definitions())
				return nil
			}
			err := a.demo(cmd.Context(), flags)
			if cmd.Context().Err() != nil && !flags.exit {
				return nil // That is how it ends.
			}
			return err
		}),
	})
	cmd.Flags().BoolVar(&flags.exit, "exit", false, "end once everything is deleted and cleaned up after; count the orphans")
	cmd.Flags().IntVar(&flags.rows, "rows", demoRows, "load about `N` rows")
	cmd.Flags().StringVar(&flags.keep, "keep", "", "keep the cluster in `DIR`, or go on with the one that is there")
	cmd.Flags().BoolVar(&flags.printSchema, "print-schema", false, "print the SQL of the sample application's tables, and do nothing else")
	cmd.Flags().BoolVar(&flags.printDefinitions, "print-definitions", false, "print its loose foreign keys, and do nothing else")
	cmd.MarkFlagsMutuallyExclusive("print-schema", "print-definitions")
	return cmd
}

// demo runs one from the start of the server to its end. The context asks it to end.
func (a *app) demo(ctx context.Context, flags demoFlags) (err error) {
	out := a.stdout
	if a.json {
		out = a.stderr
	}
	place, err := openDemoPlace(flags.keep)
	if err != nil {
		return err
	}
	began := time.Now()
	server, err := devpg.Start(ctx, devpg.Options{DataDir: place.dataDir()})
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, server.Stop())
		place.tell(out, server)
	}()
	url := server.URL(demoDatabase)
	configPath, err := place.write(server)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, demoIntroduction, time.Since(began).Milliseconds(), url)

	view, logs := demoView(out, a.stderr)
	closeView := func() {
		if view != nil {
			view.Close()
			view = nil
		}
	}
	defer closeView()
	fresh, err := createDemoDatabase(ctx, server.URL("postgres"))
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return fmt.Errorf("connect to the demo: %w", err)
	}
	defer pool.Close()
	rows, err := loadSample(ctx, pool, fresh, flags.rows, view)
	if err != nil {
		return err
	}
	c, err := config.Load(config.Options{Path: configPath, DatabaseURL: url})
	if err != nil {
		return err
	}
	log := newLogger(logs, config.Log{Level: "warn", Format: c.Log.Format})
	all, err := install(ctx, c, log)
	if err != nil {
		return err
	}
	defer all.close()

	site := demo.Site{
		Pool: pool, Names: all.jobs().Names, Definitions: all.definitions, Kind: riverjobs.Jobs(c)[0].Kind, Rows: rows, View: view,
		Work:     func(ctx context.Context) error { return a.work(ctx, all, log) },
		Activity: func(ctx context.Context) (string, error) { return activity(ctx, all) },
	}
	summary, err := demo.Run(ctx, site, flags.exit)
	closeView()
	if a.json {
		return errors.Join(err, a.printJSON(summary))
	}
	summary.Text(out)
	return err
}

// demoView picks the view for where it goes, and where log lines go beside it.
func demoView(out, stderr io.Writer) (demo.View, io.Writer) {
	file, isFile := out.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return demo.NewLines(out), stderr
	}
	screen := demo.NewScreen(out)
	if errors, isFile := stderr.(*os.File); isFile && term.IsTerminal(int(errors.Fd())) {
		return screen, screen // Above the panel, not across it.
	}
	return screen, stderr
}

// createDemoDatabase makes the database, or finds the one that an earlier demo has finished loading.
func createDemoDatabase(ctx context.Context, url string) (fresh bool, err error) {
	admin, err := pgx.Connect(ctx, url)
	if err != nil {
		return false, fmt.Errorf("connect to the private postgres: %w", err)
	}
	defer admin.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is lost with it
	name := pgx.Identifier{demoDatabase}.Sanitize()
	var loaded bool
	// The comment is written once all data is there.
	const look = `SELECT coalesce(shobj_description(oid, 'pg_database') = 'loaded', false) FROM pg_database WHERE datname = $1`
	err = admin.QueryRow(ctx, look, demoDatabase).Scan(&loaded)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return false, fmt.Errorf("look for the sample data: %w", err)
	}
	if loaded {
		return false, nil
	}
	for _, sql := range []string{"DROP DATABASE IF EXISTS " + name, "CREATE DATABASE " + name} {
		if _, err := admin.Exec(ctx, sql); err != nil {
			return false, fmt.Errorf("create database %s: %w", name, err)
		}
	}
	return true, nil
}

// loadSample fills a fresh database, and counts the rows of one that is not.
func loadSample(ctx context.Context, pool *pgxpool.Pool, fresh bool, rows int, view demo.View) (int64, error) {
	if !fresh {
		return sample.Count(ctx, pool)
	}
	if _, err := pool.Exec(ctx, sample.Schema()); err != nil {
		return 0, fmt.Errorf("create the sample application's tables: %w", err)
	}
	loaded, err := sample.Load(ctx, pool, rows, view.Loaded)
	if err != nil {
		return 0, err
	}
	if _, err := pool.Exec(ctx, "COMMENT ON DATABASE "+pgx.Identifier{demoDatabase}.Sanitize()+" IS 'loaded'"); err != nil {
		return 0, fmt.Errorf("mark the sample data as loaded: %w", err)
	}
	return loaded, nil
}

// activity says what the worker is at.
func activity(ctx context.Context, all *bound) (string, error) {
	document, err := readStatus(ctx, all.connections, all.recordedParents)
	if err != nil {
		return "", err
	}
	var lines []string
	for _, job := range document.Jobs {
		lines = append(lines, job.Kind+" "+job.activity(document))
	}
	return strings.Join(lines, "; "), nil
}

func (s *jobState) activity(document statusDocument) string {
	switch {
	case s.Running != nil:
		return fmt.Sprintf("works (run %d for %.1f s)", s.Running.RunID, max(0, time.Since(s.Running.StartedAt).Seconds()))
	case s.WaitingFor != nil:
		return "waits for " + *s.WaitingFor
	}
	for _, t := range document.DeletionTables {
		if t.Database == s.Database && t.Pending > 0 {
			return "wakes up"
		}
	}
	return "sleeps until a commit wakes it"
}
