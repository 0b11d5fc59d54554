-- Torch7 on the CPU: modules of nn, run layer by layer as its users do, with all parameters in one flat tensor.

local npy = require 'deepstone.worker.npy'

local NAME, VERSION = 'torch7', '7'  -- it never had releases
local LEARNING_RATE, MOMENTUM, ADAM_LEARNING_RATE = 1e-4, 0.9, 1e-4

local HONOURED = {
   {'device', {'auto', 'cpu'}},
   {'precision', {'auto', 'fp32', 'fp64'}},
   {'layout', {'auto', 'nchw'}},
   {'engine', {'auto', 'native'}},
   {'optimizer', {'momentum', 'sgd', 'adam'}},
   {'input', {'resident', 'host'}},
}
local IN_EFFECT = {
   device = 'cpu', engine = 'native', layout = 'nchw', algorithm = 'heuristic', compile = 'off', inter_threads = 1,
   isa = 'no limit',
}
local KINDS = {['torch.FloatTensor'] = 'f4', ['torch.DoubleTensor'] = 'f8'}
local PRECISIONS = {f4 = 'fp32', f8 = 'fp64'}
local PHASES = {forward = 2, gradient = 3, train = 4}  -- how many of those of a step
local STEP_PHASES = {'data', 'forward', 'backward', 'update'}
local SUMS, FORGETTING = 'sums of gradients', 'forgetting the gradients'
local METHOD = 'a timestamp after each layer, which Torch7 runs one by one in any case'
local RULE = 'nothing is shared: each layer has the time since the timestamp before it; sums are of the gradients that '
   .. 'meet where one output feeds several layers'

local Network, LOSS
local Backend = {}
Backend.__index = Backend

local function contains(list, value)
   for _, each in ipairs(list) do
      if each == value then
         return true
      end
   end
   return false
end

local function refuse_other_values(request)
   local refused = {}
   for _, honoured in ipairs(HONOURED) do
      local axis, values = unpack(honoured)
      if not contains(values, request[axis]) then
         table.insert(refused, axis .. '=' .. request[axis] .. ' (it takes ' .. table.concat(values, ' or ') .. ')')
      end
   end
   if #refused > 0 then
      unsupported(NAME .. ' does not honour ' .. table.concat(refused, '; '))
   end
end

local function refuse_other_ops(layers)
   local lacking, seen = {}, {}
   for _, layer in ipairs(layers) do
      if layer.op ~= 'input' and not Network.ops[layer.op] and not seen[layer.op] then
         seen[layer.op] = true
         table.insert(lacking, layer.op .. " (layer '" .. layer.name .. "')")
      end
   end
   if #lacking > 0 then
      table.sort(lacking)
      unsupported(NAME .. ' has no lowering of: ' .. table.concat(lacking, ', '))
   end
end

-- A tensor of the job's type with the values of {kind, shape, values}.
local function as_tensor(array)
   local source = array.kind == 'f8' and torch.DoubleTensor or torch.FloatTensor
   local tensor = source(torch.LongStorage(#array.shape > 0 and array.shape or {1}))
   require('ffi').copy(tensor:data(), array.values, tensor:nElement() * npy.BYTES[array.kind])
   return tensor:type(torch.getdefaulttensortype())
end

local function as_array(tensor, shape)
   tensor = tensor:contiguous()
   local array = {kind = KINDS[tensor:type()], shape = shape or tensor:size():totable(), values = tensor:data()}
   array.owner = tensor  -- its memory lives as long as the array
   return array
end

local function number_as_array(value)
   return as_array(torch.Tensor {value}, {})
end

-- The flat file of float32 weights, mapped: a tensor of any part of it.
local function mapped(weights)
   local header = npy.header(weights.path)
   local storage, places = torch.FloatStorage(weights.path, false), {}
   for _, slice in ipairs(weights.slices) do
      local layer, name, offset, shape = unpack(slice)
      places[layer .. '\0' .. name] = {header.offset / npy.BYTES.f4 + 1 + offset, torch.LongStorage(shape)}
   end
   return function(layer, name)
      return torch.FloatTensor(storage, unpack(places[layer .. '\0' .. name]))
   end
end

local function openblas()
   local ffi = require 'ffi'
   for _, path in ipairs(require('deepstone.worker.system').libraries()) do
      if path:find('openblas', 1, true) then
         return path, ffi.load(path)
      end
   end
end

-- The threads that really compute: those of TH, and those of the BLAS, which TH does not always control.
local function threads()
   local own, _, library = torch.getnumthreads(), openblas()
   local found, of_blas = pcall(function() return library.openblas_get_num_threads() end)
   if found and of_blas ~= own then
      return own .. ' and ' .. of_blas .. ' in the BLAS'
   end
   return own
end

function Backend:versions()
   local path, library = openblas()
   local versions = {name = NAME, version = VERSION, blas = path or 'not OpenBLAS'}
   local found, config = pcall(function() return require('ffi').string(library.openblas_get_config()) end)
   if found then
      versions.openblas = config
   end
   return versions
end

function Backend:phase()
   return self.request.phase
end

function Backend:phases()
   local phases = {}
   for place = 1, PHASES[self:phase()] do
      phases[place] = STEP_PHASES[place]
   end
   return phases
end

function Backend:build(job)
   for key in pairs(self) do  -- the job before is freed
      self[key] = nil
   end
   collectgarbage()
   collectgarbage()
   local request = job.request
   refuse_other_values(request)
   refuse_other_ops(job.graph.layers)
   self.request, self.graph = request, job.graph
   self.training = request.phase ~= 'forward'
   torch.setdefaulttensortype(request.precision == 'fp64' and 'torch.DoubleTensor' or 'torch.FloatTensor')
   torch.manualSeed(request.seed)
   if request.threads ~= 'auto' then
      torch.setnumthreads(request.threads)
   end
   self:read_graph()
   self.initial = mapped(job.weights)
   self.host_samples = as_tensor(npy.read(job.batch.samples))
   self.host_labels = torch.LongTensor(request.batch)
   require('ffi').copy(self.host_labels:data(), npy.read(job.batch.labels).values, 8 * request.batch)
   self.host_labels:add(1)  -- classes count from 1
   self.samples, self.labels = self.host_samples, self.host_labels
   if request.input == 'host' then
      self.samples, self.labels = self.host_samples:clone(), self.host_labels:clone()
   end
   self.network = self:lowered(self.graph.layers, true)
   self.parameters, self.gradients = self.network:flat()
   self.pieces = self:make_pieces()
end

function Backend:read_graph()
   self.by_name, self.shapes, self.ops, self.takers = {}, {}, {}, {}
   self.trained_before = {}  -- layers whose output depends on weights, or on an image whose gradient is wanted
   for _, layer in ipairs(self.graph.layers) do
      self.by_name[layer.name], self.shapes[layer.name], self.ops[layer.name] = layer, layer.output, layer.op
      local depends = next(layer.parameters) ~= nil
      for _, source in ipairs(layer.inputs) do
         self.takers[source] = (self.takers[source] or 0) + 1
         depends = depends or self.trained_before[source]
      end
      if layer.op == 'input' then
         self.input, depends = layer.name, self.request.input_grad == 'on'
      end
      self.trained_before[layer.name] = depends
   end
end

function Backend:lowered(layers, in_place)
   local network = Network.new {
      layers = layers, shapes = self.shapes, ops = self.ops, takers = self.takers, labels = self.labels,
      dropout = self.request.dropout == 'on', training = self.training, in_place = in_place,
   }
   network:load(self.initial)
   return network
end

-- What a layer's module is given: one tensor, or a table of them.
local function given(layer, tensors)
   if layer.op ~= 'add' and layer.op ~= 'concat' then
      return tensors[layer.inputs[1]]
   end
   local list = {}
   for place, source in ipairs(layer.inputs) do
      list[place] = tensors[source]
   end
   return list
end

local function gradient_of(layer, gradients, place)
   return (layer.op == 'add' or layer.op == 'concat') and gradients[place] or gradients
end

-- The pieces of a step in its order: {phase, layer or '', what, function}.
function Backend:make_pieces()
   local pieces, outputs, incoming = {}, {[self.input] = self.samples}, {}
   local function add(phase, layer, what, run)
      pieces[#pieces + 1] = {phase = phase, layer = layer, what = what, run = run}
   end
   if self.request.input == 'host' then
      add(1, '', 'data', function()
         self.samples:copy(self.host_samples)
         self.labels:copy(self.host_labels)
      end)
   end
   for _, layer in ipairs(self.graph.layers) do
      if layer.op ~= 'input' then
         self:add_forward(add, layer, outputs)
      end
   end
   if self.training then
      add(3, '', FORGETTING, function() self.gradients:zero() end)
      for place = #self.graph.layers, 1, -1 do
         local layer = self.graph.layers[place]
         if layer.op ~= 'input' and self.trained_before[layer.name] then
            self:add_backward(add, layer, outputs, incoming)
         end
      end
   end
   if self.request.phase == 'train' then
      add(4, '', 'update', self:make_update())
   end
   return pieces
end

function Backend:add_forward(add, layer, outputs)
   local module, name = self.network.modules[layer.name], layer.name
   if layer.op == 'add' or layer.op == 'concat' then
      add(2, name, 'forward', function() outputs[name] = module:updateOutput(given(layer, outputs)) end)
   else
      local source = layer.inputs[1]
      add(2, name, 'forward', function() outputs[name] = module:updateOutput(outputs[source]) end)
   end
end

-- `incoming`: for every layer the gradients of its output, in places that its readers fill.
function Backend:add_backward(add, layer, outputs, incoming)
   local module, name = self.network.modules[layer.name], layer.name
   local upstream, reached = self:sum_of_gradients(add, layer, incoming), {}
   for place, source in ipairs(layer.inputs) do
      if self.trained_before[source] then
         incoming[source] = incoming[source] or {}
         local slot = #incoming[source] + 1
         incoming[source][slot] = false
         reached[#reached + 1] = {source, slot, place}
      end
   end
   local has_parameters = next(layer.parameters) ~= nil
   add(3, name, 'backward', function()
      local input, gradient = given(layer, outputs), upstream()
      if #reached > 0 then
         local gradients = module:updateGradInput(input, gradient)
         for _, each in ipairs(reached) do
            incoming[each[1]][each[2]] = gradient_of(layer, gradients, each[3])
         end
      end
      if has_parameters then
         module:accGradParameters(input, gradient)
      end
   end)
end

-- A function that returns the gradient of a layer's output. Where several layers read it, their gradients are summed.
function Backend:sum_of_gradients(add, layer, incoming)
   if layer.op == LOSS then
      return function() return 1 end
   end
   local slots = incoming[layer.name]
   if #slots == 1 then
      return function() return slots[1] end
   end
   local total = torch.Tensor()
   add(3, '', SUMS, function()
      total:resizeAs(slots[1]):copy(slots[1])
      for place = 2, #slots do
         total:add(slots[place])
      end
   end)
   return function() return total end
end

function Backend:make_update()
   local weights, gradients, kind = self.parameters, self.gradients, self.request.optimizer
   if kind == 'sgd' then
      return function() weights:add(-LEARNING_RATE, gradients) end
   end
   local mean = gradients:clone():zero()
   if kind == 'momentum' then
      return function()
         mean:mul(MOMENTUM):add(gradients)
         weights:add(-LEARNING_RATE, mean)
      end
   end
   local square, root, count = mean:clone(), mean:clone(), 0
   return function()
      count = count + 1
      mean:mul(0.9):add(0.1, gradients)
      square:mul(0.999):addcmul(0.001, gradients, gradients)
      root:sqrt(square):mul(1 / math.sqrt(1 - 0.999 ^ count)):add(1e-8)
      weights:addcdiv(-ADAM_LEARNING_RATE / (1 - 0.9 ^ count), mean, root)
   end
end

function Backend:step(program)
   assert(program == self:phase(), 'its phases are timed one by one, so it has one program')
   local runs = {}
   for place, piece in ipairs(self.pieces) do
      runs[place] = piece.run
   end
   return function()
      for place = 1, #runs do
         runs[place]()
      end
   end
end

function Backend:step_in_phases(set_timestamp)
   local place = 1
   for phase = 1, PHASES[self:phase()] do
      while self.pieces[place] and self.pieces[place].phase == phase do
         self.pieces[place].run()
         place = place + 1
      end
      set_timestamp(phase)
   end
end

function Backend:observe()
   local found = {}
   for axis, value in pairs(self.request) do
      found[axis] = {value = value, source = 'set'}
   end
   for axis, value in pairs(IN_EFFECT) do
      found[axis] = {value = value, source = 'set'}
   end
   local observed = {
      framework = NAME .. '@' .. VERSION,
      precision = PRECISIONS[KINDS[self.parameters:type()]],
      threads = threads(),
   }
   for axis, value in pairs(observed) do
      found[axis] = {value = value, source = 'observed'}
   end
   return found
end

function Backend:loss()
   return self.network:loss()
end

local function joined(parts)
   return #parts == 1 and parts[1] or torch.cat(parts, 1)
end

local function buffers_of(layer, module)
   if layer.op ~= 'batch_norm' then
      return {}
   end
   return {{'running_mean', as_array(module.running_mean)}, {'running_var', as_array(module.running_var)}}
end

local function parameters_of(network, layer, gradients)
   local found, tensors = {}, network:tensors(layer, gradients)
   for _, name in ipairs {'weight', 'bias'} do
      if tensors[name] then
         found[#found + 1] = {name, as_array(joined(tensors[name]))}
      end
   end
   return found
end

function Backend:arrays(kind)
   local found = {}
   for _, layer in ipairs(self.graph.layers) do
      local own = {}
      if kind == 'buffers' and layer.op ~= 'input' then
         own = buffers_of(layer, self.network.modules[layer.name])
      elseif kind ~= 'buffers' and next(layer.parameters) then
         own = parameters_of(self.network, layer, kind == 'gradients')
      end
      for _, named in ipairs(own) do
         found[#found + 1] = {layer.name .. '/' .. named[1], named[2]}
      end
   end
   return found
end

-- The gradients of each source of a layer, summed where it reads one twice: {source, tensor}.
local function by_source(layer, gradients)
   local found, places = {}, {}
   for place, source in ipairs(layer.inputs) do
      local gradient = gradient_of(layer, gradients, place)
      if places[source] then
         found[places[source]][2]:add(gradient)
      else
         found[#found + 1] = {source, gradient:clone()}
         places[source] = #found
      end
   end
   return found
end

function Backend:layer(name, inputs, upstream)
   local layer, tensors = self.by_name[name], {}
   for source, array in pairs(inputs) do
      tensors[source] = as_tensor(array)
   end
   local network = self:lowered({layer}, false)
   local module, input = network.modules[name], given(layer, tensors)
   local output = module:updateOutput(input)
   local results = {{'output', '', layer.op == LOSS and number_as_array(output) or as_array(output:clone())}}
   local function add(kind, found)
      for _, named in ipairs(found) do
         results[#results + 1] = {kind, named[1], named[2]}
      end
   end
   if upstream then
      local gradient = layer.op == LOSS and tonumber(upstream.values[0]) or as_tensor(upstream)
      module:zeroGradParameters()
      local gradients = module:updateGradInput(input, gradient)
      module:accGradParameters(input, gradient)
      for _, found in ipairs(by_source(layer, gradients)) do
         add('input', {{found[1], as_array(found[2])}})
      end
      add('parameter', parameters_of(network, layer, true))
   end
   add('buffer', buffers_of(layer, module))
   return results
end

-- The layer with arrays of its real shapes, as a step has them.
function Backend:isolated_layer(name)
   local layer, tensors = self.by_name[name], {}
   local op, batch = layer.op, self.request.batch
   if op == 'input' or op == 'flatten' or (op == 'dropout' and self.request.dropout ~= 'on') then
      return {programs = {}}  -- it only passes on an array
   end
   for _, source in ipairs(layer.inputs) do
      tensors[source] = torch.randn(torch.LongStorage {batch, unpack(self.shapes[source])})
   end
   local module, input = self:lowered({layer}, true).modules[name], given(layer, tensors)
   local output = module:updateOutput(input)
   local gradient = op == LOSS and 1 or torch.randn(output:size())
   local programs = {{'forward', function() module:updateOutput(input) end}}
   local has_parameters, wanted = next(layer.parameters) ~= nil, false
   for _, source in ipairs(layer.inputs) do
      wanted = wanted or self.trained_before[source]
   end
   local function data()
      module:updateGradInput(input, gradient)
   end
   local function weight()
      module:zeroGradParameters()  -- as in a step, which adds to what is there
      module:accGradParameters(input, gradient)
   end
   local function backward()
      if wanted then
         data()
      end
      if has_parameters then
         weight()
      end
   end
   if self.training and (wanted or has_parameters) then
      table.insert(programs, {'backward', backward})
   end
   if self.training and (op == 'conv' or op == 'dense') then
      table.insert(programs, {'weight', weight})
      if wanted then
         table.insert(programs, {'data', data})
      end
   end
   return {programs = programs}
end

function Backend:in_place(steps)
   local found = {}
   for number = 1, steps do
      found[number] = self:account()
   end
   return {method = METHOD, rule = RULE, steps = found}
end

function Backend:account()
   local clock, times = require('deepstone.worker.system').clock, {}
   times[1] = clock()
   for place, piece in ipairs(self.pieces) do
      piece.run()
      times[place + 1] = clock()
   end
   local step = {total_s = times[#times] - times[1], data_s = 0, update_s = 0, gaps_s = 0, layers = {}, other = {}}
   local others = {}
   for place, piece in ipairs(self.pieces) do
      local taken_s = times[place + 1] - times[place]
      if piece.layer ~= '' then
         step.layers[#step.layers + 1] = {piece.layer, piece.what, taken_s}
      elseif piece.what == 'data' or piece.what == 'update' then
         step[piece.what .. '_s'] = taken_s
      else
         if not others[piece.what] then
            others[piece.what] = {piece.what, 0}
            step.other[#step.other + 1] = others[piece.what]
         end
         others[piece.what][2] = others[piece.what][2] + taken_s
      end
   end
   return step
end

return function()
   require 'torch'
   require 'nn'
   local lowering = require 'deepstone.backends.legacy.torch7_network'
   Network, LOSS = lowering.Network, lowering.LOSS
   require('ffi').cdef [[
      int openblas_get_num_threads(void);
      char *openblas_get_config(void);
   ]]
   return setmetatable({}, Backend)
end
