package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// forever is the return time of an operation that may take effect at any later time.
const forever = math.MaxInt64

// seen is a record in a response.
type seen struct {
	UID      string `json:"uid"`
	Value    string `json:"value"`
	Etag     string `json:"etag"`
	Tag      string `json:"tag"`
	Identity string `json:"identity"`
}

// operation is one line of a history; test/faults/history/history.ts describes the fields.
type operation struct {
	Client     int    `json:"client"`
	Call       int64  `json:"call"`
	Return     *int64 `json:"return"`
	Action     string `json:"action"`
	Kind       string `json:"kind"`
	Parent     string `json:"parent"`
	Outcome    string `json:"outcome"`
	UID        string `json:"uid"`
	Value      string `json:"value"`
	Etag       string `json:"etag"`
	Tag        string `json:"tag"`
	Identity   string `json:"identity"`
	Name       string `json:"name"`
	Guard      string `json:"guard"`
	GuardValue string `json:"guardValue"`
	Code       int    `json:"code"`
	Members    []seen `json:"members"`
}

func (o *operation) returned() int64 {
	if o.Return == nil || o.Outcome == "unknown" {
		return forever
	}
	return *o.Return
}

func (o *operation) sure() bool {
	return o.Outcome != "unknown"
}

var actions = map[string]bool{"create": true, "update": true, "read": true, "list": true, "delete": true, "use": true}
var outcomes = map[string]bool{"ok": true, "absent": true, "stale": true, "taken": true, "refused": true, "unknown": true}

func (o *operation) check() error {
	switch {
	case !actions[o.Action]:
		return fmt.Errorf("action %q", o.Action)
	case !outcomes[o.Outcome]:
		return fmt.Errorf("outcome %q", o.Outcome)
	case o.Kind == "" || o.Parent == "":
		return errors.New("kind and parent are needed")
	case o.sure() && o.Return == nil:
		return errors.New("a known outcome needs a return time")
	case o.Return != nil && *o.Return < o.Call:
		return errors.New("returned before it was called")
	case o.UID == "" && (o.Action == "read" || o.Action == "update" || o.Action == "delete" || o.Action == "create" && o.Outcome == "ok"):
		return errors.New("uid is needed")
	case o.Action == "use" && (o.Identity == "" || o.Outcome != "ok" && o.Outcome != "absent"):
		return errors.New("a use has an identity, and is ok or absent")
	case o.Outcome == "ok" && o.Action != "list" && o.Action != "delete" && o.Action != "use" && o.Value == "":
		return errors.New("value is needed")
	}
	return nil
}

// readHistory parses JSON lines. Errors name the line.
func readHistory(input io.Reader) ([]*operation, error) {
	decoder := json.NewDecoder(input)
	decoder.DisallowUnknownFields()
	var found []*operation
	for {
		o := &operation{}
		err := decoder.Decode(o)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err == nil {
			err = o.check()
		}
		if err != nil {
			return nil, fmt.Errorf("operation %d: %w", len(found)+1, err)
		}
		found = append(found, o)
	}
}
