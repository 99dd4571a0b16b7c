package config

import "time"

// DefaultDefinitions is the definitions file that is read where none is named.
const DefaultDefinitions = "loose_foreign_keys.yml"

// defaults is the configuration without any database.
func defaults() Config {
	return Config{
		Jobs: Jobs{
			Schema:           "sexton",
			Owner:            "sexton_owner",
			MaxWorkers:       10,
			Silence:          15 * time.Second,
			Reindex:          "0 3 * * *",
			LockTimeout:      time.Second,
			StatementTimeout: 5 * time.Second,
			ReplicaLag:       10 * time.Second,
			ReplicaLagBytes:  256 << 20,
		},
		LooseForeignKeys: LooseForeignKeys{
			Enabled:       true,
			Schedule:      "* * * * *",
			Definitions:   []string{DefaultDefinitions},
			Truncate:      TruncateReject,
			Target:        20 * time.Millisecond,
			Duty:          50,
			ConfirmWithin: time.Hour,
			ConfirmGrace:  10 * time.Minute,
		},
		GhostUsers: GhostUsers{
			Schedule:   "*/2 * * * *",
			Limit:      1000,
			MaxRuntime: time.Minute,
			RetryAfter: 30 * time.Minute,
			Batches:    Batches{Move: 50, Delete: 1000, Nullify: 100},
			Target:     20 * time.Millisecond,
			Duty:       50,
			Move:       ghostMoves(),
			Delete:     ghostDeletions(),
			Nullify:    ghostNullifications(),
		},
		PlaceholderUsers: PlaceholderUsers{
			Schedule:    "0 0 * * *",
			MaxAttempts: 15,
			RetryPeriod: 48 * time.Hour,
			Spacing:     time.Second,
			References:  placeholderReferences(),
		},
		AdjournedGroups: AdjournedGroups{
			Schedule:  "0 2 * * *",
			BatchSize: 100,
			Spacing:   20 * time.Second,
			Target:    20 * time.Millisecond,
			Duty:      50,
		},
		ExternalDiffs: ExternalDiffs{
			Schedule: "15 * * * *",
			When:     "always",
			Limit:    1000,
			Order:    "id",
			Bucket:   "file:///var/lib/sexton/diffs",
			Sweep:    DiffSweep{Enabled: true, Every: 24 * time.Hour, Grace: 24 * time.Hour},
		},
		HTTP: HTTP{Listen: "127.0.0.1:8686"},
		Log:  Log{Level: "info", Format: FormatAuto},
	}
}

// SetDefaults fills a database before its keys are read.
func (d *Database) SetDefaults() {
	d.Schema = "public"
	d.SearchPath = PathAuto
	d.Pace = Adaptive
}
