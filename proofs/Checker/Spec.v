(** * What a redistribution plan is, and what it promises

    This file is the whole statement; it knows nothing of how a plan is checked.
    Part 1 is the plan as its JSON form has it, part 2 the meaning of a type (Figure 7a),
    part 3 what every collective does to the local buffers of the devices,
    part 4 the promises.  [check_plan_sound] in [Sound.v] says that a plan which the
    boolean [check_plan] of [Check.v] accepts keeps every one of them. *)

From Coq Require Import ZArith List Bool.
Import ListNotations.
Open Scope Z_scope.

(** ** 1. Plans *)

Definition device := Z.
Definition point := list Z.  (** one coordinate per dimension, or one extent, or one count *)

(** [Dim c xs s] is the dimension [c{xs}s]: tile, axes from minor to major as numbers of mesh axes, size. *)
Record dim := Dim { tile : Z; axes : list Z; size : Z }.
Definition type := list dim.

(** Axis sizes, and the device number at each row-major position. Numbers may be left out. *)
Record mesh := Mesh { axis_sizes : list Z; device_at : list device }.

(** Tiles per dimension, and row [d] the tile index of device [d]: all -1 if it holds nothing. *)
Record placement := Placement { grid : list Z; index : list point }.

Record share := Share { src : device; dst : device; round : Z; corner : point; extent : point }.

Inductive implementation := Rounds | Ragged.

Inductive action :=
| DynSlice
| AllGather (groups : list (list device))
| AllToAll (groups : list (list device))
| AllPermute (pairs : list (device * device))  (** sender, receiver *)
| Exchange (how : implementation) (shares : list share).

(** [before] and [after] are positions in the plan's table of placements. *)
Record step := Step { before : Z; after : Z; act : action }.

Record plan := Plan {
  source : type; source_mesh : mesh;
  target : type; target_mesh : mesh;
  placements : list placement;
  steps : list step }.

(** *** Lists as vectors and tables *)

Fixpoint lookup {A} (l : list A) (i : Z) : option A :=
  match l with
  | [] => None
  | x :: r => if i =? 0 then Some x else lookup r (i - 1)
  end.

Definition entry {A} (default : A) (l : list A) (i : Z) : A :=
  match lookup l i with Some x => x | None => default end.

Fixpoint zip {A B C} (f : A -> B -> C) (l : list A) (m : list B) : list C :=
  match l, m with
  | x :: r, y :: s => f x y :: zip f r s
  | _, _ => []
  end.

Definition plus : point -> point -> point := zip Z.add.
Definition minus : point -> point -> point := zip Z.sub.
Definition times : point -> point -> point := zip Z.mul.
Definition quotient : point -> point -> point := zip Z.div.
Definition remainder : point -> point -> point := zip Z.modulo.
Definition smaller : point -> point -> point := zip Z.min.

(** How far [m] lies beyond [l], and 0 where it does not. *)
Definition beyond : point -> point -> point := zip (fun x y => Z.max 0 (y - x)).

Definition prod (l : list Z) : Z := fold_right Z.mul 1 l.

(** Is [l] a local index of a box of this shape? *)
Fixpoint inside (shape l : point) : bool :=
  match shape, l with
  | [], [] => true
  | s :: ss, x :: xs => (0 <=? x) && (x <? s) && inside ss xs
  | _, _ => false
  end.

(** Is the global coordinate [g] in the box that starts at [lo]? *)
Definition in_box (lo shape g : point) : bool := inside shape (minus g lo).

(** The number of a cell of a grid with these radices, the last dimension fastest. *)
Fixpoint row_major (radices cell : list Z) : Z :=
  match radices, cell with
  | _ :: rs, c :: cs => c * prod rs + row_major rs cs
  | _, _ => 0
  end.

(** The numbers below [k], and the local indices of a box of this shape, row-major. *)
Definition range (k : Z) : list Z := map Z.of_nat (seq 0 (Z.to_nat k)).

Fixpoint cells (shape : point) : list point :=
  match shape with
  | [] => [[]]
  | s :: rest => let tails := cells rest in flat_map (fun c => map (cons c) tails) (range s)
  end.

Definition len {A} (l : list A) : Z := Z.of_nat (length l).

Definition sum (l : list Z) : Z := fold_right Z.add 0 l.

(** ** 2. What a type means *)

(** Coordinates of a row-major position on axes of these sizes. *)
Fixpoint coordinates (sizes : list Z) (position : Z) : list Z :=
  match sizes with
  | [] => []
  | s :: rest => (position / prod rest) mod s :: coordinates rest position
  end.

Fixpoint position_of (d : device) (l : list device) : Z :=
  match l with
  | [] => 0
  | e :: rest => if d =? e then 0 else 1 + position_of d rest
  end.

Definition axis_index (m : mesh) (d : device) : list Z :=
  coordinates (axis_sizes m) (position_of d (device_at m)).

(** Figure 7a: D of a dimension and T of a type, at device [d]. *)
Fixpoint dim_offset (m : mesh) (i : list Z) (c : Z) (xs : list Z) : Z :=
  match xs with
  | [] => 0
  | x :: rest => c * entry 0 i x + dim_offset m i (c * entry 1 (axis_sizes m) x) rest
  end.

Definition base_offset (m : mesh) (t : type) (d : device) : point :=
  map (fun e => dim_offset m (axis_index m d) (tile e) (axes e)) t.

Definition local_shape (t : type) : point := map tile t.
Definition global_shape (t : type) : point := map size t.

Definition devices (m : mesh) : Z := prod (axis_sizes m).
Definition is_device (n : Z) (d : device) : bool := (0 <=? d) && (d <? n).

(** Is a device in the mesh, and one more than the largest that is. *)
Definition has_device (m : mesh) (d : device) : bool := existsb (Z.eqb d) (device_at m).
Definition span (m : mesh) : Z := fold_right (fun d k => Z.max (d + 1) k) 0 (device_at m).

Definition mesh_ok (m : mesh) : Prop :=
  Forall (fun s => 1 <= s) (axis_sizes m) /\
  NoDup (device_at m) /\ len (device_at m) = devices m /\ Forall (fun d => 0 <= d) (device_at m).

(** Figure 7b: tile times axis sizes is the size, and no axis occurs twice. A dimension may be empty. *)
Definition type_ok (m : mesh) (t : type) : Prop :=
  Forall (fun e => 0 <= tile e /\ tile e * prod (map (entry 0 (axis_sizes m)) (axes e)) = size e) t /\
  (forall x, In x (flat_map axes t) -> lookup (axis_sizes m) x <> None) /\
  NoDup (flat_map axes t).

(** Tile shape and offsets of a placement of an array of shape [s]. *)
Definition tile_of (s : point) (p : placement) : point := quotient s (grid p).
Definition offset_of (s : point) (p : placement) (d : device) : point :=
  times (entry [] (index p) d) (tile_of s p).

(** Does a device hold a tile? *)
Definition has_tile (p : placement) (d : device) : bool := forallb (Z.leb 0) (entry [] (index p) d).
Definition is_holder (n : Z) (p : placement) (d : device) : bool := is_device n d && has_tile p d.

(** ** 3. What a step does to data *)

(** A state says what every device's buffer holds at each local index; [None] is no data. *)
Definition state (V : Type) := device -> point -> option V.

(** Every one of some devices holds a tile of the global array [v], from its own offset on; the others hold nothing. *)
Definition holding {V} (who : device -> bool) (shape : point) (offset : device -> point) (v : point -> V) : state V :=
  fun d l => if who d && inside shape l then Some (v (plus (offset d) l)) else None.

Definition group_of (groups : list (list device)) (d : device) : list device :=
  match find (existsb (Z.eqb d)) groups with Some g => g | None => [] end.

(** Equal chunks of shape [chunk] arrive from the members of a group in order and are laid out row-major in a
    buffer of shape [shape]: from whom local index [l] comes, and its place in the chunk. *)
Definition from_member (group : list device) (shape chunk l : point) : option (device * point) :=
  match lookup group (row_major (quotient shape chunk) (quotient l chunk)) with
  | Some m => Some (m, remainder l chunk)
  | None => None
  end.

(** [supply n s b a act d l]: where the element comes from that device [d] holds at local index [l] after the step:
    whose buffer, and where in it.  [b] and [a] are the placements before and after, [s] is the global shape.

    - dynslice: [d] cuts its own buffer;
    - allgather: whole tiles arrive in the order of the group;
    - alltoall: chunks arrive in the order of the group; member [m] cuts the chunk for [d] out of its own buffer,
      as far from its start as [d]'s new tile starts beyond [m]'s;
    - allpermute: the sender's whole buffer, or else one's own;
    - exchange: a share that covers the place, or else one's own buffer. *)
Definition supply (n : Z) (s : point) (b a : placement) (x : action) (d : device) (l : point)
  : option (device * point) :=
  let tb := tile_of s b in let ta := tile_of s a in
  let ob := offset_of s b in let oa := offset_of s a in
  if is_holder n a d && inside ta l then
    match x with
    | DynSlice => Some (d, plus l (minus (oa d) (ob d)))
    | AllGather groups => from_member (group_of groups d) ta tb l
    | AllToAll groups =>
        match from_member (group_of groups d) ta (smaller tb ta) l with
        | Some (m, k) => Some (m, plus k (beyond (ob m) (oa d)))
        | None => None
        end
    | AllPermute pairs =>
        match find (fun p => snd p =? d) pairs with
        | Some (m, _) => Some (m, l)
        | None => Some (d, l)
        end
    | Exchange _ shares =>
        let g := plus (oa d) l in
        match find (fun h => (dst h =? d) && in_box (corner h) (extent h) g) shares with
        | Some h => Some (src h, minus g (ob (src h)))
        | None => Some (d, minus g (ob d))
        end
    end
  else None.

Section Running.
  Variable p : plan.

  (** Devices that neither mesh has are counted where their numbers are left out: they hold nothing at either end. *)
  Definition device_count : Z := Z.max (span (source_mesh p)) (span (target_mesh p)).
  Definition array_shape : point := global_shape (source p).
  Definition placed (i : Z) : placement := entry (Placement [] []) (placements p) i.
  Definition tile_at (i : Z) : point := tile_of array_shape (placed i).
  Definition offset_at (i : Z) : device -> point := offset_of array_shape (placed i).

  Definition step_supply (s : step) :=
    supply device_count array_shape (placed (before s)) (placed (after s)) (act s).

  Definition run_step {V} (st : state V) (s : step) : state V := fun d l =>
    match step_supply s d l with
    | Some (m, k) => st m k
    | None => None
    end.

  Definition run {V} (ss : list step) (st : state V) : state V := fold_left run_step ss st.
End Running.

Definition in_round (r : Z) (shares : list share) : list share := filter (fun h => round h =? r) shares.

Definition largest (shares : list share) : Z := fold_right Z.max 0 (map (fun h => prod (extent h)) shares).

(** What travels for a share: in rounds as much as for the largest of its round, in a ragged all-to-all its own. *)
Definition carried (how : implementation) (shares : list share) (h : share) : Z :=
  match how with
  | Rounds => largest (in_round (round h) shares)
  | Ragged => prod (extent h)
  end.

(** How many others are in one's group; none for who is in no group. *)
Definition others (group : list device) : Z := match group with [] => 0 | _ :: rest => len rest end.

Definition to_device (d : device) (shares : list share) : list share := filter (fun h => dst h =? d) shares.

(** The library's [received], how much of it is padding, and what the rest is to count: how many elements of its new
    tile device [d] takes from other devices. *)
Definition received (s : point) (b a : placement) (x : action) (d : device) : Z :=
  let tb := tile_of s b in let ta := tile_of s a in
  match x with
  | DynSlice => 0
  | AllGather groups => others (group_of groups d) * prod tb
  | AllToAll groups => others (group_of groups d) * prod (smaller tb ta)
  | AllPermute pairs => if existsb (fun p => snd p =? d) pairs then prod tb else 0
  | Exchange how shares => sum (map (carried how shares) (to_device d shares))
  end.

Definition padding (x : action) (d : device) : Z :=
  match x with
  | Exchange how shares => sum (map (fun h => carried how shares h - prod (extent h)) (to_device d shares))
  | _ => 0
  end.

Definition from_others (n : Z) (s : point) (b a : placement) (x : action) (d : device) : Z :=
  len (filter (fun l => match supply n s b a x d l with Some (m, _) => negb (m =? d) | None => false end)
         (cells (tile_of s a))).

Definition plan_received (p : plan) (d : device) : Z :=
  sum (map (fun s => received (array_shape p) (placed p (before s)) (placed p (after s)) (act s) d) (steps p)).

(** ** 4. What an accepted plan promises *)

(** Who may hand data to device [d] in a step: [d] itself, members of its group, its sender, senders of its shares.
    [b] and [a] are the tile indices of the placements, [g] is the global coordinate of the element. *)
Definition may_supply (x : action) (m d : device) (g : point) : Prop :=
  match x with
  | DynSlice => m = d
  | AllGather groups | AllToAll groups => exists group, In group groups /\ In m group /\ In d group
  | AllPermute pairs => In (m, d) pairs \/ m = d /\ ~ In d (map snd pairs)
  | Exchange _ shares =>
      m = d \/ exists h, In h shares /\ src h = m /\ dst h = d /\ in_box (corner h) (extent h) g = true
  end.

(** The rules of one collective operation, data apart. *)
Definition groups_ok (who : device -> bool) (groups : list (list device)) : Prop :=
  NoDup (concat groups) /\ (forall d, In d (concat groups) <-> who d = true) /\
  forall g h, In g groups -> In h groups -> length g = length h.

Definition one_way (n : Z) (pairs : list (device * device)) : Prop :=
  NoDup (map fst pairs) /\ NoDup (map snd pairs) /\
  forall m d, In (m, d) pairs -> is_device n m = true /\ is_device n d = true /\ m <> d.

(** A share lies in its sender's tile and in its receiver's new tile; a receiver gets no element twice and none
    that it keeps; in a round every device sends at most one share and receives at most one. *)
Definition shares_ok (n : Z) (s : point) (b a : placement) (shares : list share) : Prop :=
  (forall h, In h shares -> has_tile b (src h) = true /\ has_tile a (dst h) = true) /\
  (forall h g, In h shares -> in_box (corner h) (extent h) g = true ->
     in_box (offset_of s b (src h)) (tile_of s b) g = true /\
     in_box (offset_of s a (dst h)) (tile_of s a) g = true /\
     in_box (offset_of s b (dst h)) (tile_of s b) g = false) /\
  ForallOrdPairs (fun h k => dst h = dst k -> forall g,
     in_box (corner h) (extent h) g = true -> in_box (corner k) (extent k) g = false) shares /\
  forall r, one_way n (map (fun h => (src h, dst h)) (in_round r shares)).

Definition collective_ok (n : Z) (s : point) (b a : placement) (x : action) : Prop :=
  match x with
  | DynSlice => True
  | AllGather groups | AllToAll groups => groups_ok (is_holder n b) groups
  | AllPermute pairs => one_way n pairs /\ forall m d, In (m, d) pairs -> has_tile b m = true
  | Exchange _ shares => shares_ok n s b a shares
  end.

Section Promises.
  Variable p : plan.
  Let n := device_count p.

  Definition source_state {V} : (point -> V) -> state V :=
    holding (has_device (source_mesh p)) (local_shape (source p)) (base_offset (source_mesh p) (source p)).
  Definition target_state {V} : (point -> V) -> state V :=
    holding (has_device (target_mesh p)) (local_shape (target p)) (base_offset (target_mesh p) (target p)).
  Definition placed_state {V} (i : Z) : (point -> V) -> state V :=
    holding (is_holder n (placed p i)) (tile_at p i) (offset_at p i).

  (** Source and target are well-formed types of one array, on the same devices or on others. *)
  Definition types_ok : Prop :=
    mesh_ok (source_mesh p) /\ mesh_ok (target_mesh p) /\
    type_ok (source_mesh p) (source p) /\ type_ok (target_mesh p) (target p) /\
    global_shape (target p) = global_shape (source p).

  (** The steps are a path: the first begins at the source's tiles and base offsets, each begins where the one
      before it ended, and the last ends at the target's; so do the devices that hold something. *)
  Definition same_place (t t' : point) (w w' : device -> bool) (o o' : device -> point) : Prop :=
    t = t' /\ forall d, is_device n d = true -> w d = w' d /\ (w d = true -> o d = o' d).
  Fixpoint path (t : point) (w : device -> bool) (o : device -> point) (ss : list step) : Prop :=
    match ss with
    | [] =>
        same_place t (local_shape (target p)) w (has_device (target_mesh p)) o (base_offset (target_mesh p) (target p))
    | s :: rest =>
        let b := placed p (before s) in let a := placed p (after s) in
        same_place t (tile_at p (before s)) w (has_tile b) o (offset_at p (before s)) /\
        path (tile_at p (after s)) (has_tile a) (offset_at p (after s)) rest
    end.
  Definition leads_from_source_to_target : Prop :=
    path (local_shape (source p)) (has_device (source_mesh p)) (base_offset (source_mesh p) (source p)) (steps p).

  (** Whatever the array and its elements: tiles of the source type in, tiles of the target type out. *)
  Definition redistributes : Prop :=
    forall V (v : point -> V) d l, run p (steps p) (source_state v) d l = target_state v d l.

  (** After every step each device holds exactly the tile that the step's placement says. *)
  Definition tracks_placements : Prop :=
    forall done s rest, steps p = done ++ s :: rest ->
    forall V (v : point -> V) d l,
      run p (done ++ [s]) (source_state v) d l = placed_state (after s) v d l.

  (** The collective is well formed, and every element of a new tile comes from one who may supply it, out of
      the tile which that one holds. *)
  Definition lawful (s : step) : Prop :=
    collective_ok n (array_shape p) (placed p (before s)) (placed p (after s)) (act s) /\
    forall d l, is_holder n (placed p (after s)) d = true -> inside (tile_at p (after s)) l = true ->
    exists m k, step_supply p s d l = Some (m, k) /\
      is_holder n (placed p (before s)) m = true /\ inside (tile_at p (before s)) k = true /\
      may_supply (act s) m d (plus (offset_at p (after s) d) l).

  (** What the library reports as received is exactly what comes from other devices, and the padding. *)
  Definition counts_exactly (s : step) : Prop :=
    forall d, is_device n d = true ->
    let b := placed p (before s) in let a := placed p (after s) in
    from_others n (array_shape p) b a (act s) d = received (array_shape p) b a (act s) d - padding (act s) d /\
    0 <= padding (act s) d.

  (** No tile at the source or on the way exceeds [limit] elements. *)
  Definition within_bound (limit : Z) : Prop :=
    prod (local_shape (source p)) <= limit /\
    forall s, In s (steps p) -> prod (tile_at p (after s)) <= limit.

  (** What the search promises unless it is allowed more memory. *)
  Definition larger_end : Z := Z.max (prod (local_shape (source p))) (prod (local_shape (target p))).

  Record promises (limit : Z) : Prop := {
    promises_types : types_ok;
    promises_path : leads_from_source_to_target;
    promises_data : redistributes;
    promises_tracks : tracks_placements;
    promises_lawful : forall s, In s (steps p) -> lawful s;
    promises_received : forall s, In s (steps p) -> counts_exactly s;
    promises_bound : within_bound limit }.
End Promises.
