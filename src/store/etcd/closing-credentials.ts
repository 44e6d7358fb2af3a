import { ChannelCredentials } from '@grpc/grpc-js'
import type { Socket } from 'node:net'

type Connector = ReturnType<ChannelCredentials['_createSecureConnector']>

/**
 * gRPC credentials that also close a channel's unfinished connections when the channel closes. By default, gRPC keeps such a connection open as long as the
 * server does.
 */
export class ClosingCredentials extends ChannelCredentials {
  readonly #inner: ChannelCredentials

  constructor(inner: ChannelCredentials) {
    super()
    this.#inner = inner
  }

  override _isSecure(): boolean {
    return this.#inner._isSecure()
  }

  override _equals(other: ChannelCredentials): boolean {
    return this === other
  }

  override _createSecureConnector(...target: Parameters<ChannelCredentials['_createSecureConnector']>): Connector {
    const connector = this.#inner._createSecureConnector(...target)
    const sockets = new Set<Socket>()
    return {
      connect: (socket) => {
        sockets.add(socket)
        socket.once('close', () => sockets.delete(socket))
        return connector.connect(socket)
      },
      waitForReady: () => connector.waitForReady(),
      getCallCredentials: () => connector.getCallCredentials(),
      destroy: () => {
        connector.destroy()
        for (const socket of sockets) socket.destroy()
      },
    }
  }
}
