import { fork } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import type { JwtShape } from '../load/jwt-signer.ts'

/** A server without code of the product. */
export interface BareServer {
  readonly pid: number
  readonly port: number
  stop(): Promise<void>
}

async function start(program: string, message: string | object): Promise<BareServer> {
  const child = fork(join(import.meta.dirname, program), { execArgv: ['--disable-warning=ExperimentalWarning'] })
  child.send(message)
  const [port] = await once(child, 'message')
  return {
    pid: child.pid ?? 0,
    port: Number(port),
    async stop() {
      const exited = once(child, 'exit')
      child.disconnect()
      await exited
    },
  }
}

/** Starts a Koa server that responds to every request with `text`. */
export function startBareKoa(text: string): Promise<BareServer> {
  return start('koa-server.ts', text)
}

/** Starts a grpc-js server that responds to calls of `path` with `answer`. */
export function startBareGrpc(path: string, answer: Buffer): Promise<BareServer> {
  return start('grpc-server.ts', { path, answer: answer.toString('base64') })
}

/** Starts a node:net server that relays bytes to and from a port on this machine. */
export function startBareRelay(port: number): Promise<BareServer> {
  return start('relay-server.ts', { port })
}

/** Starts a node:http server that responds to every request with a newly signed token of this shape. */
export function startBareSigner(shape: JwtShape): Promise<BareServer> {
  return start('signing-server.ts', shape)
}
