// Starts a command of src/cli on the pinned Node where it is installed, else on this one; needs no build.
import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'

const root = join(import.meta.dirname, '..')

/** Becomes the command whose module is `entry`, with this process's arguments. `name` is what a person calls it. */
export function launch(entry, name) {
  const pinned = join(root, 'node_modules', '.bin', 'node')
  const node = existsSync(pinned) ? pinned : process.execPath
  const args = ['--disable-warning=ExperimentalWarning', join(root, 'src', 'cli', entry), ...process.argv.slice(2)]
  if (node === process.execPath && !process.features.typescript) {
    process.stderr.write(`${name}: Node ${process.versions.node} is too old: run "npm install" in ${root}, which brings the right one\n`)
    process.exit(1)
  }
  if (typeof process.execve === 'function') process.execve(node, [node, ...args], process.env)
  else forward(spawn(node, args, { stdio: 'inherit' }), `${name}: can't start ${node}`)
}

/** Makes this process a shell around `child`: signals go in; its exit code or fatal signal comes out. */
function forward(child, fault) {
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2']
  for (const signal of signals) process.on(signal, () => child.kill(signal))
  child.on('error', (error) => {
    process.stderr.write(`${fault}: ${error.message}\n`)
    process.exit(1)
  })
  child.on('exit', (code, signal) => {
    if (signal === null) process.exit(code ?? 1)
    for (const name of signals) process.removeAllListeners(name)
    process.kill(process.pid, signal)
  })
}
