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

// The actions, named as in the definitions file.
const (
	Delete       Action = "async_delete"
	Nullify      Action = "async_nullify"
	UpdateColumn Action = "update_column_to"
)

// ArtifactsCleaner is the only cleaner class: it deletes the rows and writes an event
// with their keys, so that another program can remove their files.
const ArtifactsCleaner = "Ci::JobArtifacts::LooseForeignKeyCleanerService"

// Name is a table name in the file. An empty Schema stands for the schema configured for
// the database.
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

// Condition restricts a definition to children with a value in a column, for polymorphic
// references.
type Condition struct {
	Column string `yaml:"column,required"`
	// Value is the text form, cast to the column's type in SQL.
	Value yamlfile.Literal `yaml:"value,required"`
}

// Constraint holds the name and the options of a foreign key that a definition replaced.
type Constraint struct {
	// Name is the name of the foreign key; by default the one that Postgres chooses.
	Name string `yaml:"name"`
	// Deferrable reports that the foreign key is DEFERRABLE.
	Deferrable bool `yaml:"deferrable"`
	// Initially is when the foreign key is checked, by default immediate; deferred needs
	// Deferrable.
	Initially Initially `yaml:"initially"`
	// Match is the MATCH type of the foreign key, by default simple.
	Match Match `yaml:"match"`
	// OnUpdate is the ON UPDATE action of the foreign key, by default no_action.
	OnUpdate OnUpdate `yaml:"on_update"`
}

// Initially is when a foreign key is checked.
type Initially string

// Match is the MATCH type of a foreign key.
type Match string

// OnUpdate is the ON UPDATE action of a foreign key. Definitions do not update children
// when the key of their parent changes.
type OnUpdate string

// The options that differ from the defaults of Postgres.
const (
	Deferred Initially = "deferred"
	Full     Match     = "full"
	Restrict OnUpdate  = "restrict"
)

// Choices lists the times of a check.
func (Initially) Choices() []string { return []string{"immediate", string(Deferred)} }

// Choices lists the MATCH types.
func (Match) Choices() []string { return []string{"simple", string(Full)} }

// Choices lists the actions.
func (OnUpdate) Choices() []string { return []string{"no_action", string(Restrict)} }

// SQL returns the options of ADD CONSTRAINT after REFERENCES.
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

// WorkerClass is a label without effect.
type WorkerClass string

// CleanerClass is empty or ArtifactsCleaner.
type CleanerClass string

// Definition is one entry of a file. The Columns of Child contain the key of Parent. The
// comments are the descriptions in the JSON schema.
type Definition struct {
	// Position is the start of the entry. Key is its path, such as "issues[2]".
	Position problem.Position
	Key      string

	// Parent is read from Table.
	Child, Parent Name

	// Table is the parent, never a partition.
	Table string `yaml:"table,required"`
	// Columns is the child's column with the parent's key, or the list of them; index it.
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
	// DeleteLimit is the maximum number of rows of one DELETE; by default that of the pace.
	DeleteLimit int `check:"positive" yaml:"delete_limit"`
	// WorkerClass is a label without effect.
	WorkerClass WorkerClass `yaml:"worker_class"`
	// Event writes an event with the keys of the deleted rows of each batch: true for the
	// keys only, or a list of further columns of the rows.
	Event yamlfile.Columns `yaml:"event"`
	// CleanerClass is GitLab's name for event: true.
	CleanerClass CleanerClass `yaml:"cleaner_class"`
	// Database is the database of the child, if several databases have a table of its name.
	Database string `yaml:"database"`
	// ParentColumns are the referenced columns of the parent, one for each of Columns; by
	// default the primary key.
	ParentColumns yamlfile.Texts `yaml:"parent_column"`
	// Constraint has the options of the replaced foreign key, for `sexton definitions
	// foreign-keys`.
	Constraint Constraint `yaml:"constraint"`

	positions yamlfile.Positions
}

// At returns the position of the value of a key, such as column or column[1], or the
// start of the entry if it has no such key.
func (d Definition) At(key string) problem.Position {
	return d.positions.Of(d.Key + "." + key).Position
}

// EmitsEvent reports whether an event is written for deleted rows.
func (d Definition) EmitsEvent() bool { return d.Event != nil || d.CleanerClass == ArtifactsCleaner }

// ColumnList returns the columns of the child, separated by commas.
func (d Definition) ColumnList() string { return strings.Join(d.Columns, ", ") }

// maxIdentifier is the number of bytes after which Postgres cuts names.
const maxIdentifier = 63

// ParseName parses a table name. "schema.table" is split at its first dot; the case of
// letters is kept. A part in double quotes, with "" for a quote in it, may contain dots:
// "my.schema"."my.table". The error is a clause without a subject.
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
