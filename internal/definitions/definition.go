package definitions

import (
	"errors"
	"fmt"
	"strings"

	"sexton/internal/problem"
	"sexton/internal/yamlfile"
)

// Action is the change to the children of a deleted parent.
type Action string

// The actions have the names that the definitions file uses.
const (
	Delete       Action = "async_delete"
	Nullify      Action = "async_nullify"
	UpdateColumn Action = "update_column_to"
)

// ArtifactsCleaner is the only cleaner class: it deletes the rows and writes an event
// with their keys, so that another program can remove their files.
const ArtifactsCleaner = "Ci::JobArtifacts::LooseForeignKeyCleanerService"

// Name is a table name in the file. If Schema is empty, the table is in the schema that
// is configured for the database.
type Name struct {
	Schema string
	Table  string
}

// String returns schema.table, or the table if the file names no schema.
func (n Name) String() string {
	if n.Schema == "" {
		return n.Table
	}
	return n.Schema + "." + n.Table
}

// Condition restricts a definition to the children that have the given value in a column,
// for polymorphic references.
type Condition struct {
	Column string `yaml:"column,required"`
	// Value is the value as text. Statements cast it to the type of the column.
	Value yamlfile.Literal `yaml:"value,required"`
}

// Constraint holds the name and the options of a foreign key that a definition replaced.
type Constraint struct {
	// Name is the name of the foreign key. The default is the name that Postgres chooses.
	Name string `yaml:"name"`
	// Deferrable reports that the foreign key is DEFERRABLE.
	Deferrable bool `yaml:"deferrable"`
	// Initially is the time at which the foreign key is checked. The default is
	// immediate. The value deferred requires Deferrable.
	Initially Initially `yaml:"initially"`
	// Match is the MATCH type of the foreign key. The default is simple.
	Match Match `yaml:"match"`
	// OnUpdate is the ON UPDATE action of the foreign key. The default is no_action.
	OnUpdate OnUpdate `yaml:"on_update"`
}

// Initially is the time at which a foreign key is checked.
type Initially string

// Match is the MATCH type of a foreign key.
type Match string

// OnUpdate is the ON UPDATE action of a foreign key. Definitions do not update children
// when the key of their parent changes.
type OnUpdate string

// These constants are the options of a foreign key that differ from the defaults of
// Postgres.
const (
	Deferred Initially = "deferred"
	Full     Match     = "full"
	Restrict OnUpdate  = "restrict"
)

// Choices returns the times at which a foreign key can be checked.
func (Initially) Choices() []string { return []string{"immediate", string(Deferred)} }

// Choices returns the MATCH types.
func (Match) Choices() []string { return []string{"simple", string(Full)} }

// Choices returns the ON UPDATE actions.
func (OnUpdate) Choices() []string { return []string{"no_action", string(Restrict)} }

// SQL returns the clauses of ADD CONSTRAINT that follow REFERENCES.
func (c Constraint) SQL(onDelete string) string {
	text := ""
	if c.Match == Full {
		text += " MATCH FULL"
	}
	text += " ON DELETE " + onDelete
	if c.OnUpdate == Restrict {
		text += " ON UPDATE RESTRICT"
	}
	if c.Deferrable {
		text += " DEFERRABLE"
	}
	if c.Initially == Deferred {
		text += " INITIALLY DEFERRED"
	}
	return text
}

// WorkerClass is the name of a worker of GitLab. Sexton ignores it.
type WorkerClass string

// CleanerClass is empty or ArtifactsCleaner.
type CleanerClass string

// Definition is one entry of a file. The Columns of Child contain the key of Parent. The
// comments of the fields are also the descriptions in the JSON schema.
type Definition struct {
	// Position is the position of the entry in the file. Key is the path of the entry,
	// such as "issues[2]".
	Position problem.Position
	Key      string

	// Child is the table whose list contains the entry. Parent is parsed from Table.
	Child, Parent Name

	// Table is the parent table. It must not be a partition.
	Table string `yaml:"table,required"`
	// Columns is the child's column with the parent's key, or a list of columns. They
	// need an index.
	Columns yamlfile.Texts `yaml:"column,required"`
	// OnDelete is the change to the children of a deleted parent.
	OnDelete Action `yaml:"on_delete,required"`
	// TargetColumn is the column that update_column_to sets.
	TargetColumn string `yaml:"target_column"`
	// TargetValue is the value that update_column_to sets.
	TargetValue yamlfile.Literal `yaml:"target_value"`
	// Conditions restrict the definition to children in which every column equals its
	// value.
	Conditions []Condition `yaml:"conditions"`
	// DeleteLimit is the maximum number of rows of one DELETE. The default is the limit
	// of the pace.
	DeleteLimit int `check:"positive" yaml:"delete_limit"`
	// WorkerClass is the name of a worker of GitLab. Sexton ignores it.
	WorkerClass WorkerClass `yaml:"worker_class"`
	// Event makes each batch write an event with the keys of the deleted rows: true for
	// the keys only, or a list of further columns of the rows.
	Event yamlfile.Columns `yaml:"event"`
	// CleanerClass has the effect of event: true. Its only value is the class that GitLab
	// uses for artifacts.
	CleanerClass CleanerClass `yaml:"cleaner_class"`
	// Database is the database of the child. It is needed if several databases have a
	// table with the child's name.
	Database string `yaml:"database"`
	// ParentColumns lists the referenced columns of the parent, in the order of Columns.
	// The default is the primary key.
	ParentColumns yamlfile.Texts `yaml:"parent_column"`
	// Constraint has the options of the replaced foreign key, for `sexton definitions
	// foreign-keys`.
	Constraint Constraint `yaml:"constraint"`

	positions yamlfile.Positions
}

// At returns the position of a value in the file by its key, such as column or column[1].
// If the entry has no such key, At returns the position of the nearest key above it, or
// the start of the entry.
func (d Definition) At(key string) problem.Position {
	return d.positions.Of(d.Key + "." + key).Position
}

// EmitsEvent reports whether an event is written for the deleted rows.
func (d Definition) EmitsEvent() bool { return d.Event != nil || d.CleanerClass == ArtifactsCleaner }

// ColumnList returns the columns of the child, separated by commas.
func (d Definition) ColumnList() string { return strings.Join(d.Columns, ", ") }

// maxIdentifier is the maximum length of a name in bytes. Postgres truncates longer
// names.
const maxIdentifier = 63

// ParseName parses a table name. It splits schema.table at the first dot and keeps the
// case of letters. A part in double quotes, with "" for a quote in it, may contain dots:
// "my.schema"."my.table". The error is a phrase without a subject, such as "is empty".
func ParseName(text string) (Name, error) {
	first, rest, qualified, err := namePart(text, true)
	name, parts := Name{Table: first}, []string{first}
	if err == nil && qualified {
		name.Schema = first
		name.Table, _, _, err = namePart(rest, false)
		parts = append(parts, name.Table)
	}
	for _, part := range parts {
		if err == nil {
			err = checkIdentifier(part)
		}
	}
	if err != nil {
		return Name{}, err
	}
	return name, nil
}

// namePart parses a name up to the dot or, if no dot is allowed, to the end.
func namePart(text string, dot bool) (part, rest string, found bool, err error) {
	if !strings.HasPrefix(text, `"`) {
		if !dot {
			return text, "", false, nil
		}
		part, rest, found = strings.Cut(text, ".")
		return part, rest, found, nil
	}
	end := 1
	for {
		i := strings.Index(text[end:], `"`)
		if i < 0 {
			return "", "", false, errors.New("lacks its closing double quote")
		}
		end += i + 1
		if !strings.HasPrefix(text[end:], `"`) {
			break
		}
		end++
	}
	part = strings.ReplaceAll(text[1:end-1], `""`, `"`)
	switch {
	case text[end:] == "":
		return part, "", false, nil
	case dot && text[end] == '.':
		return part, text[end+1:], true, nil
	default:
		return "", "", false, errors.New("has text after its closing double quote")
	}
}

func checkIdentifier(name string) error {
	switch {
	case name == "":
		return errors.New("is empty")
	case strings.Contains(name, "\x00"):
		return errors.New("contains a NUL character")
	case len(name) > maxIdentifier:
		return fmt.Errorf("has %d bytes; Postgres allows %d", len(name), maxIdentifier)
	default:
		return nil
	}
}
