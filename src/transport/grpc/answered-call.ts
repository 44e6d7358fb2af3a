import type { ServerInterceptingCallInterface } from '@grpc/grpc-js'

/** A call that is answered where it arrives. The library's handler is told nothing of it: what that would send is dropped. */
export abstract class AnsweredCall implements ServerInterceptingCallInterface {
  protected readonly base: ServerInterceptingCallInterface

  constructor(base: ServerInterceptingCallInterface) {
    this.base = base
  }

  /** Answers the call. */
  abstract start(): void

  sendMetadata(): void {
    // The handler that would is never called; so below.
  }

  sendMessage(): void {}

  sendStatus(): void {}

  startRead(): void {}

  getPeer(): string {
    return this.base.getPeer()
  }

  getDeadline(): ReturnType<ServerInterceptingCallInterface['getDeadline']> {
    return this.base.getDeadline()
  }

  getHost(): string {
    return this.base.getHost()
  }

  getAuthContext(): ReturnType<ServerInterceptingCallInterface['getAuthContext']> {
    return this.base.getAuthContext()
  }

  getConnectionInfo(): ReturnType<ServerInterceptingCallInterface['getConnectionInfo']> {
    return this.base.getConnectionInfo()
  }

  getMetricsRecorder(): ReturnType<ServerInterceptingCallInterface['getMetricsRecorder']> {
    return this.base.getMetricsRecorder()
  }
}
