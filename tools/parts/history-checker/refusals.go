package main

import (
	"fmt"
	"slices"
)

// failedPrecondition is the code of a removal that is refused since something hangs on the record.
const failedPrecondition = 9

// checkRefusals fails where the removal of a group was refused though nothing can have been in it, and that of a role though nothing can have bound it. It looks at
// each record for itself: that one of several was there at that moment, and not which.
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

// canBeThere tells whether the record can have been there at some moment of the operation.
func (l *life) canBeThere(o *operation) bool {
	return l.record.create.call <= o.returned() && l.gone >= o.Call
}

// canHoldAny looks for a record that can have been in the group.
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

// canHoldUnseen looks for a creation without an answer that no later list of the group had to show: nobody can remove what nobody has seen.
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
