// Publishes ports of a container, as Docker's proxy does: `node forward-ports.ts <container's address> <address:port:target> ...`.
import { connect, createServer } from 'node:net'
import { argv, stdout } from 'node:process'

const [container = '', ...published] = argv.slice(2)
for (const rule of published) {
  const [address, port, target] = rule.split(':')
  createServer((client) => {
    const server = connect(Number(target), container)
    client.on('error', () => server.destroy())
    server.on('error', () => client.destroy())
    client.pipe(server).pipe(client)
  }).listen(Number(port), address, () => stdout.write('listening\n'))
}
