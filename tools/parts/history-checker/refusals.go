package main

import (
	"fmt"
	"slices"
)

// failedPrecondition is the gRPC status code for a removal that is refused because other records depend on the record.
const failedPrecondition = 9

// checkRefusals fails if the removal of a group was refused although it cannot have contained any record. It does the same for a role that
// cannot have been bound. It considers each record alone: that one existed at that moment, not which one.
func (w *world) checkRefusals(history []*operation, lives map[*record]*life) {
	in := w.byPlace()
	for _, o := range history {
		if o.Action != "delete" || o.Outcome != "refused" || o.Code != failedPrecondition {
			continue
		}
		switch o.Kind {
		case "Group":
			if !w.canHoldAny(o, in, lives) && !w.canHoldUnseen(o, history) {
				w.fail("refusal Group "+o.UID, 1, fmt.Sprintf("delete[client %d, %d..%d] was refused, but the group was empty", o.Client, o.Call, o.returned()))
			}
		case "Role":
			if !canBeBound(o, in[place(binding, o.Parent)], lives) && !canBeBoundUnseen(o, history) {
				w.fail("refusal Role "+o.UID, 1, fmt.Sprintf("delete[client %d, %d..%d] was refused, but nothing bound the role", o.Client, o.Call, o.returned()))
			}
		}
	}
}

// canBeThere returns true if the record can have existed at some moment of the operation.
func (l *life) canBeThere(o *operation) bool {
	return l.record.create.call <= o.returned() && l.gone >= o.Call
}

// canHoldAny returns true if a known record can have been in the group.
func (w *world) canHoldAny(o *operation, in map[string][]*record, lives map[*record]*life) bool {
	for _, kind := range blockingKinds {
		for _, r := range in[place(kind, o.UID)] {
			if lives[r].canBeThere(o) {
				return true
			}
		}
	}
	return false
}

// canHoldUnseen returns true if an unanswered creation may have added a record to the group and no later list should have shown it. A
// record that no response has shown cannot be removed by a client.
func (w *world) canHoldUnseen(o *operation, history []*operation) bool {
	for _, creation := range history {
		if creation.Parent != o.UID || !creation.isUnseenCreation() || creation.Call > o.returned() || !slices.Contains(blockingKinds, creation.Kind) {
			continue
		}
		isMissed := slices.ContainsFunc(w.lists[place(creation.Kind, o.UID)], func(list *operation) bool { return list.Call > o.returned() })
		if !isMissed {
			return true
		}
	}
	return false
}

func (o *operation) isUnseenCreation() bool {
	return o.Action == "create" && o.Outcome == "unknown" && o.UID == ""
}

func canBeBound(o *operation, bindings []*record, lives map[*record]*life) bool {
	return slices.ContainsFunc(bindings, func(r *record) bool {
		isOfRole := func(e *event) bool { return e.call <= o.returned() && slices.Contains(e.values(), o.UID) }
		return lives[r].canBeThere(o) && slices.ContainsFunc(r.events, isOfRole)
	})
}

func canBeBoundUnseen(o *operation, history []*operation) bool {
	return slices.ContainsFunc(history, func(creation *operation) bool {
		return creation.isUnseenCreation() && creation.Kind == binding && creation.Value == o.UID && creation.Call <= o.returned()
	})
}
