package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/cli/jobs"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/devpg"
	"sexton/internal/exampleapp"
	"sexton/internal/installation"
	"sexton/internal/operator"
	"sexton/internal/undo"
)

const (
	demoDatabase = "demo"
	demoRows     = 200_000
	fewestRows   = 1_000
)

const demoIntroduction = `An application deletes parents, users and groups, adds diffs, and deletes one project by mistake.
Triggers record the work that follows, and a worker does it in small batches. The wrong deletion is undone.

`

type demoFlags struct {
	exit, printSchema, printDefinitions bool
	rows                                int
}

// Command returns the command demo.
func Command(env *cli.Env) *cobra.Command {
	var flags demoFlags
	cmd := env.JSONCommand(&cobra.Command{
		Use:   "demo",
		Short: "Run Sexton on a private Postgres with sample data",
		Long: `Starts a private Postgres on a Unix socket, loads the sample data of a small application like
GitLab, and runs a worker while the application deletes random parents and users. One scene for
each kind of job and one for undo show the progress: as a panel on a terminal, otherwise as one
line per scene and second. Ctrl-C stops the demo and removes everything. It reads one environment
variable: SEXTON_PG_BIN, the folder of the server's programs.`,
		Example: `  sexton demo
  sexton demo --exit --json                     # ends when all jobs are done, and prints a summary
  sexton demo --print-schema | less`,
	}, func(ctx context.Context, _ []string) error {
		if env.ConfigPath != "" || env.DatabaseURL != "" {
			return cli.Usage(errors.New("demo runs on its own private Postgres and accepts neither --config nor --database-url"))
		}
		if flags.rows < fewestRows {
			return cli.Usage(fmt.Errorf("--rows must be at least %d", fewestRows))
		}
		switch {
		case flags.printSchema:
			env.Printf("%s", exampleapp.Schema())
			return nil
		case flags.printDefinitions:
			env.Printf("%s", exampleapp.Definitions())
			return nil
		}
		return play(ctx, env, flags)
	})
	cmd.Flags().BoolVar(&flags.exit, "exit", false, "end when all jobs are done; exit with an error if data is lost")
	cmd.Flags().IntVar(&flags.rows, "rows", demoRows, "load about `N` rows")
	cmd.Flags().BoolVar(&flags.printSchema, "print-schema", false,
		"print the SQL of the sample application's tables, and exit")
	cmd.Flags().BoolVar(&flags.printDefinitions, "print-definitions", false,
		"print its loose foreign keys, and exit")
	cmd.MarkFlagsMutuallyExclusive("print-schema", "print-definitions")
	return cmd
}

// play starts a private server, runs a demo on it, and stops the server.
func play(ctx context.Context, env *cli.Env, flags demoFlags) (err error) {
	out := env.Stdout
	if env.JSON {
		out = env.Stderr
	}
	unsetLibpq()
	began := time.Now()
	_, _ = io.WriteString(out, demoIntroduction)
	server, err := devpg.Start(ctx, devpg.Options{BinDir: env.Getenv("SEXTON_PG_BIN")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	started := fmt.Sprintf("private Postgres started in %d ms; connect with:\n", time.Since(began).Milliseconds())
	_, _ = fmt.Fprintf(out, "%s  psql '%s'\n\n", started, server.URL(demoDatabase))
	err = playOn(ctx, env, server, flags, out)
	if !flags.exit && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		// A demo without --exit ends with Ctrl-C, so the cancellation is not an error.
		return nil
	}
	return err
}

// playOn creates the demo's database on a server and runs the demo.
func playOn(ctx context.Context, env *cli.Env, server *devpg.Server, flags demoFlags, out io.Writer) error {
	url := server.URL(demoDatabase)
	configPath, err := writeConfiguration(url, server.SocketDir())
	if err != nil {
		return err
	}
	display, logs, format := demoDisplay(env, out)
	if err := createDemoDatabase(ctx, server.URL("postgres")); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return fmt.Errorf("connect to the demo: %w", err)
	}
	defer pool.Close()
	rows, err := loadSample(ctx, pool, flags.rows, display)
	if err != nil {
		return err
	}
	c, err := config.Load(config.Options{Path: configPath, DatabaseURL: url})
	if err != nil {
		return err
	}
	// Jobs log warnings about rows that they keep. The scenes count these rows, so only
	// errors are logged.
	log := env.NewLogger(logs, config.Log{Level: "error", Format: format})
	all, err := installation.Install(ctx, c, log)
	if err != nil {
		return err
	}
	defer all.Close()

	// Other demos and workers may be running on this machine, so the page listens on a
	// free port.
	page, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for the page: %w", err)
	}
	defer page.Close()
	_, _ = fmt.Fprintf(out, "web page with pending work and failures:\n  http://%s/\n\n", page.Addr())

	site := Site{
		Pool: pool, Definitions: all.Definitions, Rows: rows, Display: display,
		Objects: filepath.Join(filepath.Dir(configPath), demoObjects),
		Work:    func(ctx context.Context) error { return jobs.Work(ctx, all, log, jobs.Endpoint{Listener: page}) },
		Undo: func(ctx context.Context, deletion int64) (rows int64, err error) {
			by := database.Change{Actor: "demo", Action: "undo"}
			err = operator.ChangeKept(ctx, all, deletion, by, log, func(engine *undo.Engine) error {
				report, err := engine.Restore(ctx, deletion, false)
				if err == nil {
					rows = report.Restored
				}
				return err
			})
			return rows, err
		},
	}
	summary, err := Run(ctx, site, flags.exit)
	if env.JSON {
		return errors.Join(err, env.PrintJSON(summary))
	}
	_, printErr := io.WriteString(out, summary.Text())
	return errors.Join(err, printErr)
}

// unsetLibpq removes libpq's environment variables. They would change the connections to
// the private server.
func unsetLibpq() {
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "PG") {
			_ = os.Unsetenv(name)
		}
	}
}

// demoDisplay returns the display, the writer for log lines, and the format of log lines.
func demoDisplay(env *cli.Env, out io.Writer) (*Display, io.Writer, config.Format) {
	panel := cli.IsTerminal(out) && !env.Dumb()
	display := NewDisplay(out, panel)
	if panel && cli.IsTerminal(env.Stderr) {
		// The display writes log lines above the panel.
		return display, display, config.FormatText
	}
	return display, env.Stderr, config.FormatAuto
}
