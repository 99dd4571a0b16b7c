package config

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"time"

	"sexton/internal/problem"
	"sexton/internal/render"
	"sexton/internal/yamlfile"
)

// Config is the effective configuration. Load checks it, and it is not changed
// afterwards.
type Config struct {
	// Databases are in the order of the file; there is at least one.
	Databases        []Database       `yaml:"databases,keyed"`
	Jobs             Jobs             `yaml:"jobs"`
	LooseForeignKeys LooseForeignKeys `yaml:"loose_foreign_keys"`
	GhostUsers       GhostUsers       `yaml:"ghost_users"`
	PlaceholderUsers PlaceholderUsers `yaml:"placeholder_users"`
	AdjournedGroups  AdjournedGroups  `yaml:"adjourned_groups"`
	ExternalDiffs    ExternalDiffs    `yaml:"external_diffs"`
	Retention        Retention        `yaml:"retention"`
	HTTP             HTTP             `yaml:"http"`
	Log              Log              `yaml:"log"`

	positions yamlfile.Positions
	// Path is the path of the file; empty if there is no file.
	Path string `yaml:"-"`
}

// Database is one database whose rows Sexton deletes.
type Database struct {
	// Name appears in job arguments, lease keys and metrics: lower-case letters, digits
	// and underscores.
	Name string `yaml:"-"`
	// URL is the address, postgres://… or a libpq connection string. Without this section
	// DATABASE_URL defines the database main.
	URL URL `yaml:"url,required"`
	// ListenURL is a direct connection for LISTEN if URL goes through a transaction
	// pooler; default URL.
	ListenURL URL `yaml:"listen_url"`
	// Schema is the schema of tables named without one.
	Schema string `default:"public" yaml:"schema"`
	// SearchPath is the search_path of the application's triggers in batches; auto is the
	// setting of the role or the database.
	SearchPath string `default:"auto" yaml:"search_path"`
	// Tables are shell patterns of the tables in this database, if several have a table
	// of that name.
	Tables []string `yaml:"tables"`
	// Pace limits one run of the loose foreign keys; adaptive has no limit of rows.
	Pace Pace `default:"adaptive" yaml:"pace"`
	// Limits override those of the pace.
	Limits Limits `yaml:"limits"`
}

// PathAuto is the default of Database.SearchPath.
const PathAuto = "auto"

// TriggerPath returns the configured search_path, or "" for PathAuto.
func (d Database) TriggerPath() string {
	if d.SearchPath == PathAuto {
		return ""
	}
	return d.SearchPath
}

// Limits bound one run of the loose foreign keys clean-up. In a Database zero stands for
// the limit of the pace.
type Limits struct {
	// Deletes is how many rows one run deletes at most; 0: 100,000 (normal), 200,000
	// (turbo), no limit (adaptive).
	Deletes int `check:"not negative; 0 is the pace's own" yaml:"deletes"`
	// Updates is the same for updates; 0: 50,000 (normal), 150,000 (turbo), no limit
	// (adaptive).
	Updates int `check:"not negative; 0 is the pace's own" yaml:"updates"`
	// Runtime is the time limit of a run; default 30s, turbo 45s.
	Runtime time.Duration `check:"1s..50s" yaml:"runtime"`
}

// Pace limits the work of one run.
type Pace string

// The paces.
const (
	Normal Pace = "normal"
	Turbo  Pace = "turbo"
	// Adaptive has no limit of rows. It adjusts its statements to a target time, and
	// pauses while other sessions are active.
	Adaptive Pace = "adaptive"
)

// Choices lists the paces.
func (Pace) Choices() []string { return []string{string(Normal), string(Turbo), string(Adaptive)} }

// Limits returns the limits of the pace; 0 rows are no limit.
func (p Pace) Limits() Limits {
	switch p {
	case Turbo:
		return Limits{Deletes: 200_000, Updates: 150_000, Runtime: 45 * time.Second}
	case Normal:
		return Limits{Deletes: 100_000, Updates: 50_000, Runtime: 30 * time.Second}
	case Adaptive:
	}
	return Limits{Runtime: 30 * time.Second}
}

// Jobs configures the jobs and the tables of River and Sexton.
type Jobs struct {
	// Database is the database with jobs, leases and history; default the first one.
	Database string `yaml:"database"`
	// Owner is the role that owns Sexton's objects; not a superuser, because functions
	// run with its privileges.
	Owner string `default:"sexton_owner" yaml:"owner"`
	// MaxWorkers is how many jobs of one kind a process works in parallel, if the kind
	// has no limit of its own.
	MaxWorkers int `check:"1..10000" default:"10" yaml:"max_workers"`
	// Silence is the time without a heartbeat after which a worker counts as dead; use the
	// same value for all workers.
	Silence time.Duration `check:"2s..10m" default:"15s" yaml:"silence"`
	// Reindex is the schedule on which River rebuilds the indexes of its tables.
	Reindex Schedule `default:"0 3 * * *" yaml:"reindex"`
	// LockTimeout limits the wait of a statement on the application's tables for one lock;
	// at most two thirds of StatementTimeout.
	LockTimeout time.Duration `check:"positive" default:"1s" yaml:"lock_timeout"`
	// StatementTimeout limits such a statement, at most 1m0s; leases are extended
	// accordingly.
	StatementTimeout time.Duration `check:"positive" default:"5s" yaml:"statement_timeout"`
	// ReplicaLag is the lag of a replica above which runs with a target wait; 0s is no
	// limit.
	ReplicaLag time.Duration `check:"not negative; 0s is no limit" default:"10s" yaml:"replica_lag"`
	// ReplicaLagBytes is the same limit in bytes of write-ahead log; 0 is no limit.
	ReplicaLagBytes int `check:"not negative; 0 is no limit" default:"268435456" yaml:"replica_lag_bytes"`
}

// LooseForeignKeys configures the clean-up of children of deleted parents.
type LooseForeignKeys struct {
	// Enabled enables the job.
	Enabled bool `default:"true" yaml:"enabled"`
	// Schedule is when the job searches for work, in UTC; commits also start it.
	Schedule Schedule `default:"* * * * *" yaml:"schedule"`
	// Definitions are the files with the definitions, relative to the file that names
	// them; default loose_foreign_keys.yml.
	Definitions []string `yaml:"definitions"`
	// Truncate determines whether TRUNCATE of a tracked table fails with a hint, or runs
	// without being recorded.
	Truncate TruncatePolicy `default:"reject" yaml:"truncate"`
	// Target is the intended duration of a statement.
	Target time.Duration `check:"1ms..1s" default:"20ms" yaml:"target"`
	// Duty is the share of its time, in percent, that a run works; auto depends on the
	// load of the server.
	Duty Duty `default:"auto" yaml:"duty"`
	// Connections is the number of connections of a run while the server is otherwise idle.
	Connections int `check:"1..32" default:"2" yaml:"connections"`
	// ConfirmAfter is the time after which a removed tombstone is rechecked for late children.
	ConfirmAfter time.Duration `check:"positive" default:"10m" yaml:"confirm_after"`
	Undo         Undo          `yaml:"undo"`
}

// Undo configures which rows are kept when they are deleted with a parent.
type Undo struct {
	// Keep is the time for which rows of a deletion are kept, in full days; 0s keeps none.
	Keep time.Duration `check:"not negative" default:"0s" yaml:"keep"`
	// Tables are the parents whose deletions can be undone, named as in definitions;
	// default all except users.
	Tables []string `yaml:"tables"`
	// Users keeps rows of users and rows that are deleted with them.
	Users bool `yaml:"users"`
	// ExcludeTables are tables of which no rows, and no rows deleted with them, are kept.
	ExcludeTables []string `yaml:"exclude_tables"`
	// ExcludeColumns are columns, as table.column, that are never kept.
	ExcludeColumns []string `yaml:"exclude_columns"`
	// MaxRow is the size in bytes, uncompressed, above which a row is not kept.
	MaxRow int `check:"positive" default:"16777216" yaml:"max_row"`
	// LargeRows determines whether such a row is left_out, which makes the deletion
	// incomplete, or its clean-up waits.
	LargeRows Overflow `default:"left_out" yaml:"large_rows"`
	// MaxSize is the limit of kept bytes in each database; 0 is no limit.
	MaxSize int `check:"not negative" default:"0" yaml:"max_size"`
	// WhenFull determines the same for rows above MaxSize.
	WhenFull Overflow `default:"left_out" yaml:"when_full"`
	// FireTriggers fires the application's triggers for restored rows.
	FireTriggers bool `yaml:"fire_triggers"`

	// usersTable is ghost_users.users.table.
	usersTable string
}

// On reports whether rows are kept.
func (u Undo) On() bool { return u.Keep > 0 }

// Covers reports whether rows of a parent are kept. Names without a schema are in the
// schema tracked.
func (u Undo) Covers(tracked, schema, table string) bool {
	return u.On() && (len(u.Tables) == 0 || names(u.Tables, tracked, schema, table)) &&
		!u.Spares(tracked, schema, table)
}

func names(tables []string, tracked, schema, table string) bool {
	return slices.Contains(tables, schema+"."+table) || schema == tracked && slices.Contains(tables, table)
}

// Spares reports whether no rows of a table are kept: it is excluded, or it is the table
// of users.
func (u Undo) Spares(tracked, schema, table string) bool {
	return names(u.ExcludeTables, tracked, schema, table) || u.SparedUsers() == table && schema == tracked
}

// SparedUsers returns the table of users if its rows are not kept, else "".
func (u Undo) SparedUsers() string {
	if u.Users {
		return ""
	}
	return cmp.Or(u.usersTable, "users")
}

// Overflow determines what happens to rows that cannot be kept.
type Overflow string

// The choices: the deletion continues without them, or waits.
const (
	LeftOut Overflow = "left_out"
	Waits   Overflow = "wait"
)

// Choices lists them.
func (Overflow) Choices() []string { return []string{string(LeftOut), string(Waits)} }

// Duty is the share of its time that a run works, in percent.
type Duty int

// Auto is the full time while the server is otherwise idle, and about half of it while
// other sessions are active.
const Auto Duty = 0

// Fixed returns the configured share, or 0 for Auto.
func (d Duty) Fixed() float64 { return float64(d) / 100 }

// MarshalText returns auto, or the number.
func (d Duty) MarshalText() ([]byte, error) {
	if d == Auto {
		return []byte("auto"), nil
	}
	return strconv.AppendInt(nil, int64(d), 10), nil
}

// UnmarshalText accepts auto, or a percentage.
func (d *Duty) UnmarshalText(text []byte) error {
	percent, err := strconv.Atoi(string(text))
	switch {
	case string(text) == "auto":
		percent = int(Auto)
	case err != nil || percent < 1 || percent > 100:
		return errors.New("must be auto, or a percentage from 1 to 100")
	}
	*d = Duty(percent)
	return nil
}

// TruncatePolicy determines the effect of TRUNCATE of a tracked parent.
type TruncatePolicy string

// The policies: refuse the statement, or run it without recording it.
const (
	TruncateReject TruncatePolicy = "reject"
	TruncateIgnore TruncatePolicy = "ignore"
)

// Choices lists the policies.
func (TruncatePolicy) Choices() []string {
	return []string{string(TruncateReject), string(TruncateIgnore)}
}

// HTTP configures the web page, the metrics and the health checks.
type HTTP struct {
	// Listen is host:port of the server; empty disables it. An address other than loopback
	// needs User and Password, or Token.
	Listen string `default:"127.0.0.1:8686" yaml:"listen"`
	// User is the name for basic authentication, with Password.
	User string `yaml:"user"`
	// Password is for basic authentication, with User.
	Password Secret `yaml:"password"`
	// Token is a bearer token for Prometheus and other programs; browsers cannot send it.
	Token Secret `yaml:"token"`
	// PasswordFile is a file with Password in one line.
	PasswordFile string `yaml:"password_file"`
	// TokenFile is a file with Token in one line.
	TokenFile string `yaml:"token_file"`
	// ReadOnly refuses every request that could change something. Default true without
	// credentials, false with them.
	ReadOnly bool `yaml:"read_only"`
	// ShowArgs lets River UI show the arguments of jobs, which may hold personal data.
	ShowArgs bool `yaml:"show_args"`
}

// protected reports whether requests need credentials.
func (h HTTP) protected() bool { return h.Token != "" || h.User != "" && h.Password != "" }

// Log configures logging.
type Log struct {
	// Level is the lowest level that is logged.
	Level Level `default:"info" yaml:"level"`
	// Format is the format of log lines: auto is colored text on a terminal, else JSON.
	Format Format `default:"auto" yaml:"format"`
}

// Level is the lowest level that is logged: debug, info, warn or error.
type Level string

// Choices lists the levels.
func (Level) Choices() []string { return []string{"debug", "info", "warn", "error"} }

// Format is the form of log lines.
type Format string

// The formats: Auto is colored text on a terminal and JSON otherwise.
const (
	FormatAuto Format = "auto"
	FormatText Format = "text"
	FormatJSON Format = "json"
)

// Choices lists the formats.
func (Format) Choices() []string {
	return []string{string(FormatAuto), string(FormatText), string(FormatJSON)}
}

// DatabaseNames returns the names of the databases, in their order.
func (c *Config) DatabaseNames() []string {
	return render.Each(c.Databases, func(db Database) string { return db.Name })
}

// Database returns the database of that name.
func (c *Config) Database(name string) (Database, bool) {
	for _, d := range c.Databases {
		if d.Name == name {
			return d, true
		}
	}
	return Database{}, false
}

// Problem returns a finding about a key, such as "databases.main.url", with the origin of
// its value: file, line and column, or the variable or flag.
func (c *Config) Problem(key, message, fix string) problem.Problem {
	return c.positions.Of(key).Problem(key, message, fix)
}

// EffectiveLimits returns the limits of the pace, replaced by those that the database
// configures.
func (d Database) EffectiveLimits() Limits {
	own, pace := d.Limits, d.Pace.Limits()
	return Limits{
		cmp.Or(own.Deletes, pace.Deletes), cmp.Or(own.Updates, pace.Updates),
		cmp.Or(own.Runtime, pace.Runtime),
	}
}
