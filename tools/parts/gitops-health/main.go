// Reports the health of Kubernetes objects as seen by Argo CD and Flux. Reads {"script", "objects"} as JSON: a health script of Argo CD,
// and objects. Writes both results for each object. Argo CD runs scripts with gopher-lua, with the libraries that are open here; Flux
// computes statuses with kstatus.
package main

import (
	"encoding/json"
	"log"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

type question struct {
	Script  string                   `json:"script"`
	Objects []map[string]interface{} `json:"objects"`
}

type verdict struct {
	Argo string `json:"argo"`
	// Message that Argo CD shows with the status.
	Message string `json:"message"`
	Flux    string `json:"flux"`
}

func main() {
	log.SetFlags(0)
	var asked question
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		log.Fatal(err)
	}
	verdicts := make([]verdict, 0, len(asked.Objects))
	for _, object := range asked.Objects {
		argo, message, err := argoHealth(asked.Script, object)
		if err != nil {
			log.Fatal(err)
		}
		flux, err := fluxHealth(object)
		if err != nil {
			log.Fatal(err)
		}
		verdicts = append(verdicts, verdict{Argo: argo, Message: message, Flux: flux})
	}
	if err := json.NewEncoder(os.Stdout).Encode(verdicts); err != nil {
		log.Fatal(err)
	}
}

func argoHealth(script string, object map[string]interface{}) (string, string, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		if err := state.CallByParam(lua.P{Fn: state.NewFunction(open), NRet: 0, Protect: true}, lua.LString(name)); err != nil {
			return "", "", err
		}
	}
	state.SetGlobal("obj", luaValue(state, object))
	if err := state.DoString(script); err != nil {
		return "", "", err
	}
	answer, isTable := state.Get(-1).(*lua.LTable)
	if !isTable {
		return "", "", nil
	}
	return lua.LVAsString(answer.RawGetString("status")), lua.LVAsString(answer.RawGetString("message")), nil
}

func fluxHealth(object map[string]interface{}) (string, error) {
	// kstatus expects whole numbers in the form in which the Kubernetes API machinery decodes them.
	text, err := json.Marshal(object)
	if err != nil {
		return "", err
	}
	var read unstructured.Unstructured
	if err := read.UnmarshalJSON(text); err != nil {
		return "", err
	}
	result, err := status.Compute(&read)
	if err != nil {
		return "", err
	}
	return result.Status.String(), nil
}

func luaValue(state *lua.LState, value interface{}) lua.LValue {
	switch typed := value.(type) {
	case bool:
		return lua.LBool(typed)
	case float64:
		return lua.LNumber(typed)
	case string:
		return lua.LString(typed)
	case []interface{}:
		table := state.NewTable()
		for _, item := range typed {
			table.Append(luaValue(state, item))
		}
		return table
	case map[string]interface{}:
		table := state.NewTable()
		for key, item := range typed {
			table.RawSetString(key, luaValue(state, item))
		}
		return table
	default:
		return lua.LNil
	}
}
