package config

import "time"

// TableColumns names columns of one table that refer to a user.
type TableColumns struct {
	Table   string   `yaml:"table,required"`
	Columns []string `yaml:"columns,required"`
}

// MoveColumns names columns whose rows pass to the ghost user.
type MoveColumns struct {
	Table   string   `yaml:"table,required"`
	Columns []string `yaml:"columns,required"`
	// Always moves the rows on a hard delete as well.
	Always bool `yaml:"always"`
}

// GhostUsers configures the removal of users whose records pass to a ghost user.
type GhostUsers struct {
	Enabled  bool     `yaml:"enabled"`
	Schedule Schedule `yaml:"schedule"`
	// Limit is the number of users per run.
	Limit      int            `yaml:"limit"`
	MaxRuntime time.Duration  `yaml:"max_runtime"`
	RetryAfter time.Duration  `yaml:"retry_after"`
	Move       []MoveColumns  `yaml:"move"`
	Delete     []TableColumns `yaml:"delete"`
	Nullify    []TableColumns `yaml:"nullify"`
}

// PlaceholderUsers configures the removal of placeholder users that an import left behind.
type PlaceholderUsers struct {
	Enabled     bool          `yaml:"enabled"`
	Schedule    Schedule      `yaml:"schedule"`
	MaxAttempts int           `yaml:"max_attempts"`
	RetryPeriod time.Duration `yaml:"retry_period"`
	// Spacing is the time between the starts of two removals.
	Spacing time.Duration `yaml:"spacing"`
	// References are the columns that keep a placeholder user alive.
	References []TableColumns `yaml:"references"`
}

// AdjournedGroups configures the destruction of groups whose time has come.
type AdjournedGroups struct {
	Enabled   bool     `yaml:"enabled"`
	Schedule  Schedule `yaml:"schedule"`
	BatchSize int      `yaml:"batch_size"`
	// Spacing is the time between the starts of two destructions.
	Spacing time.Duration `yaml:"spacing"`
}

// ExternalDiffs configures the move of diffs to object storage.
type ExternalDiffs struct {
	Enabled  bool     `yaml:"enabled"`
	Schedule Schedule `yaml:"schedule"`
	When     DiffRule `yaml:"when"`
	// Limit is the number of diffs per run.
	Limit int `yaml:"limit"`
	// Bucket is a URL; a file:// URL with a relative path means the folder of the file that names it.
	Bucket URL `yaml:"bucket"`
}

// DiffRule says which diffs move: all of them, or those that are outdated.
type DiffRule string

// Choices lists the rules.
func (DiffRule) Choices() []string { return []string{"always", "outdated"} }
